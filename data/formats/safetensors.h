// Safetensors files: the length of the header (8 bytes, little-endian), a JSON header, the data.
// Tensors keep the layouts and names of the file; models/state.h converts them for a model.
// Ref: huggingface/safetensors, "Format".
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {

class AtomicFile;  // data/formats/atomic_file.h

using Metadata = std::map<std::string, std::string>;

struct SafetensorsInfo {
  DType dtype{};                // F64 F32 BF16 F16 I64 I32 U8 BOOL
  bool is_signed_byte = false;  // I8, whose dtype is u8
  Shape shape;
  int64_t begin = 0, end = 0;  // bytes, from the start of the data
};

// An open file. open() checks the whole header; tensors are read one by one.
class SafetensorsFile {
 public:
  // Errors (each with the path, and with the tensor's name if it concerns one): a pickle of PyTorch
  // (.pth, .pt, .bin), with the command that makes safetensors of it; an unreadable or truncated
  // file; a header longer than the file or than 100 MB; invalid JSON or UTF-8; a name
  // given twice; unknown keys or dtypes; shapes that overflow or do not match their bytes; offsets
  // that are out of range, overlap or leave gaps.
  static SafetensorsFile open(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& names() const { return names_; }  // in the header's order
  bool contains(const std::string& name) const { return infos_.count(name) != 0; }
  const SafetensorsInfo& info(const std::string& name) const;  // Errors: no such tensor
  const Metadata& metadata() const { return metadata_; }       // the header's __metadata__

  // A tensor on the cpu, in CategoryScope::current(). Errors: no such tensor; a file that was cut
  // since it was opened; a BOOL byte that is neither 0 nor 1; an I8.
  Tensor read(const std::string& name) const;
  Tensor read_signed_bytes(const std::string& name) const;       // an I8: its bytes as u8
  std::vector<std::pair<std::string, Tensor>> read_all() const;  // in the header's order

 private:
  void parse(const std::string& header, int64_t data_bytes);
  Tensor read_bytes(const std::string& name) const;
  std::string path_;
  FileHandle file_;
  int64_t data_begin_ = 0;
  std::vector<std::string> names_;
  std::unordered_map<std::string, SafetensorsInfo> infos_;
  Metadata metadata_;
};

// Writes tensors of any strides through AtomicFile. The header keeps the given order. In the data,
// tensors of larger elements come first, so that each tensor is aligned. Tensors of another device
// are copied one by one, under CategoryScope::current(); others are not copied.
// Errors: a name that is given twice, reserved or not UTF-8; a tensor that is undefined or on meta;
// a tensor of another device that is not a permutation of a contiguous one; those of AtomicFile.
void write_safetensors(const std::string& path,
                       const std::vector<std::pair<std::string, Tensor>>& tensors,
                       const Metadata& metadata = {});
// Makes such a file, which appears at `path` when its commit() is called.
std::unique_ptr<AtomicFile> written_safetensors(
    const std::string& path, const std::vector<std::pair<std::string, Tensor>>& tensors,
    const Metadata& metadata = {});

}  // namespace frugal::data
