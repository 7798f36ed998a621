// PackedFiles: weights that the library bitsandbytes has packed, read as models/state.h names them.
// Ref: Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023 (QLoRA); Dettmers, Lewis, Belkada, Zettlemoyer
// 2022 (LLM.int8()).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "data/formats/safetensors_shards.h"

namespace frugal::train {

// A weight W of 4 bits is W (codes), W.absmax, W.quant_map, with double quantization
// W.nested_absmax and W.nested_quant_map, and W.quant_state.bitsandbytes__nf4 or __fp4, a JSON
// text. A weight X.weight of 8 bits is X.weight (I8), X.SCB (the largest magnitude of each row) and
// X.weight_format. Others are as they are in the files.
//
// What has the layout of ops/dense/packed_matrix.h is given with its bytes: nf4 in blocks of 64
// with double quantization in blocks of 256, and int8. All else of 4 bits (fp4, other blocks,
// scales in f32, other numbers than NormalFloat's) becomes whole weights in f32.
class PackedFiles {
 public:
  // Is there such a weight?
  static bool has_packed(const data::SafetensorsShards& files);
  // Errors (with the file and the tensor): a part that is missing or has another shape or dtype; a
  // JSON text whose entries are not understood.  REQUIRES: `files` outlive this.
  explicit PackedFiles(const data::SafetensorsShards& files);

  const std::string& path() const { return files_.path(); }
  const std::vector<std::string>& names() const { return names_; }
  const data::SafetensorsInfo& info(const std::string& name) const { return infos_.at(name); }
  // On the CPU. Errors: those of SafetensorsFile::read().
  Tensor read(const std::string& name) const;

  std::string describe() const;  // a line without an end

 private:
  // How a tensor is made that the files do not have.
  struct Weight4 {
    std::string name;
    int64_t rows = 0, columns = 0, block = 0, nested_block = 0;  // nested_block 0: scales in f32
    float offset = 0;
  };
  void add_4_bits(const std::string& name, const std::string& state);
  void add_8_bits(const std::string& layer);
  void add(const std::string& name, DType dtype, const Shape& shape);
  void take_as_is(const std::string& name);
  [[noreturn]] void fail(const std::string& name, const std::string& message) const;
  // Checks a part and reads it.
  void want(const std::string& name, DType dtype, const Shape& shape) const;
  Tensor unpacked(const Weight4& weight) const;

  const data::SafetensorsShards& files_;
  std::vector<std::string> names_;
  std::map<std::string, data::SafetensorsInfo> infos_;
  std::map<std::string, Weight4> whole_;       // by the name of the weight
  std::map<std::string, float> offsets_;       // by the names of tensors .nested_offset
  std::map<std::string, std::string> maxima_;  // tensors .absmax of int8 weights: X.SCB
  int64_t as_they_are_ = 0, through_f32_ = 0;  // weights
};

}  // namespace frugal::train
