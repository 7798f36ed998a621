// Safetensors files: an 8-byte little-endian header length, a JSON header, the data. Tensors are in
// the file's own layouts and names (see models/state.h for a model's).
// Ref: huggingface/safetensors, "Format".
#pragma once
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {

using Metadata = std::map<std::string, std::string>;

struct SafetensorsInfo {
  DType dtype{};  // F64 F32 BF16 F16 I64 I32 U8 BOOL
  Shape shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the data
};

// An open file whose header was checked whole; tensors are read one by one.
class SafetensorsFile {
 public:
  // Errors (each with the path, and the tensor's name where there is one): unreadable or truncated
  // file, a header length beyond the file or above 100 MB, invalid JSON or UTF-8, a name given
  // twice, unknown keys or dtypes, shapes that overflow or do not match their bytes, offsets out of
  // range, overlapping or leaving gaps.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& names() const { return names_; }  // in the header's order
  bool contains(const std::string& name) const { return infos_.count(name) != 0; }
  const SafetensorsInfo& info(const std::string& name) const;  // Errors: no such tensor
  const Metadata& metadata() const { return metadata_; }       // the header's __metadata__

  // On cpu, in CategoryScope::current(). Errors: no such tensor, a file cut since it was opened, a
  // BOOL byte that is neither 0 nor 1.
  Tensor read(const std::string& name) const;
  std::vector<std::pair<std::string, Tensor>> read_all() const;  // in the header's order

 private:
  void parse(const std::string& header, int64_t data_bytes);
  std::string path_;
  FileHandle file_;
  int64_t data_begin_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, SafetensorsInfo> infos_;
  Metadata metadata_;
};

// Writes tensors (any strides) atomically, see atomic_file.h; the header keeps the order given, the
// data lie by falling element size, so that each tensor is aligned. Tensors of another device are
// copied one by one, under CategoryScope::current(); nothing else is copied.
// Errors: a name given twice, reserved or not UTF-8, a tensor that is undefined or on meta, one of
// another device that is no permutation of a contiguous tensor, and those of AtomicFile.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const Metadata& metadata = {});

}  // namespace frugal::data
