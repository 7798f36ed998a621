// NumPy's array files: .npy, and .npz, a zip archive of them.
// Ref: NumPy, "NEP 1: a simple file format for NumPy arrays" (versions 1 to 3).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/formats/zip.h"

namespace frugal::data {

// Arrays of at most 8 axes of f4 f8 i1 i4 i8 u1 b1, little-endian, in C or Fortran order, as
// contiguous tensors (f32 f64 i32 i32 i64 u8 bool) in category `input`.
// Errors (each with the path, of an archive also the entry): unreadable or truncated file, no array
// file, another version or dtype (objects would be pickles: nothing is executed), big-endian, a
// shape that does not match the bytes or overflows, trailing bytes, a bool neither 0 nor 1.
Tensor read_npy(const std::string& path);
// The same from memory; `where` stands for the path in messages.
Tensor parse_npy(const std::string& where, std::span<const uint8_t> bytes);

struct NpyInfo {
  DType dtype{};
  Shape shape;
};

// An open archive; arrays are read one by one, under the names that np.savez was given.
class NpzFile {
 public:
  static NpzFile open(const std::string& path);  // Errors: those of ZipFile
  const std::string& path() const { return zip_.path(); }
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const { return zip_.find(name + ".npy") != nullptr; }
  // What an array is, from its header alone. Errors: no such array, those of ZipReader and
  // read_npy.
  NpyInfo info(const std::string& name) const;
  Tensor read(const std::string& name) const;  // Errors: the same

 private:
  const ZipEntry& entry(const std::string& name) const;
  std::string where(const ZipEntry& entry) const;  // for messages
  ZipFile zip_;
};

// The dtype of NumPy's name for it without the byte order ("f4"); Errors: another one.
DType numpy_dtype(const std::string& where, const std::string& name);
// Makes a tensor of raw C- or Fortran-ordered bytes. Errors: as read_npy.
Tensor numpy_tensor(const std::string& where, DType dtype, const Shape& shape, bool fortran,
                    std::span<const uint8_t> bytes);

// Contiguous i64 of i32, i64, u8 or bool; f32 of anything. The tensor itself where nothing changes.
// Errors: to_i64 of floats.
Tensor to_i64(const std::string& where, const Tensor& tensor);
Tensor to_f32(const Tensor& tensor);

}  // namespace frugal::data
