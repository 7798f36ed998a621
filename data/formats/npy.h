// NumPy's array files: .npy, and .npz, a zip archive of them.
// Ref: NumPy, "NEP 1: a simple file format for NumPy arrays" (versions 1 to 3).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/formats/zip.h"

namespace frugal::data {

// Reads an array of at most 8 axes, little-endian, in C or Fortran order. The dtypes f4 f8 i1 i4 i8
// u1 b1 become f32 f64 i32 i32 i64 u8 bool. The tensor is contiguous and in category `input`.
// Errors (each with the path, and in an archive with the entry): an unreadable or truncated file; a
// file that is no array; another version or dtype (arrays of objects hold pickles, which are not
// executed); big-endian data; a shape that overflows or does not match the bytes; bytes behind the
// data; a bool that is neither 0 nor 1.
Tensor read_npy(const std::string& path);

struct NpyInfo {
  DType dtype{};
  Shape shape;
};

// An archive of arrays under the names that np.savez was given. Arrays are read one by one.
class NpzFile {
 public:
  static NpzFile open(const std::string& path);  // Errors: those of ZipFile
  const std::string& path() const { return zip_.path(); }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return zip_.find(name + ".npy") != nullptr; }
  // Reads dtype and shape from the array's header; its data are not unpacked. Errors: no such
  // array; those of ZipReader and read_npy.
  NpyInfo info(const std::string& name) const;
  Tensor read(const std::string& name) const;       // Errors: those of info()
  std::string text(const std::string& name) const;  // one of NumPy's bytes_. Errors: other arrays

 private:
  const ZipEntry& entry(const std::string& name) const;
  std::string where(const ZipEntry& entry) const;  // for messages
  ZipFile zip_;
};

// The dtype for NumPy's name without the byte order, such as "f4". Errors: a dtype of another name.
DType numpy_dtype(const std::string& where, const std::string& name);
// A tensor from raw bytes in C or Fortran order. Errors: those of read_npy.
Tensor numpy_tensor(const std::string& where, DType dtype, const Shape& shape, bool fortran,
                    std::span<const uint8_t> bytes);

// to_i64 converts i32, i64, u8 and bool, to_f32 any dtype. Both return the tensor itself if it has
// the dtype already. The result is contiguous. Errors: to_i64 of floats.
Tensor to_i64(const std::string& where, const Tensor& tensor);
Tensor to_f32(const Tensor& tensor);

}  // namespace frugal::data
