// GGUF files, as llama.cpp has them: values by names, and tensors. Here for adapters, which are
// small: a file is read and written as a whole.
// Ref: docs/gguf.md of the project ggml, version 3 of the format.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace frugal::data {

struct Gguf {
  using Value = std::variant<uint64_t, double, bool, std::string>;
  std::map<std::string, Value> values;
  // Shapes are row-major: the first extent of the file is the last one here.
  std::vector<std::pair<std::string, Tensor>> tensors;

  // Errors: no such value, or one of another kind. `path` is for the message.
  const std::string& text(const std::string& path, const std::string& key) const;
  double number(const std::string& path, const std::string& key) const;
};

// Values that are lists are left out. Tensors of f32, f16 and bf16 keep their dtype.
// Errors (each with the path): no GGUF file of version 2 or 3; a file that was cut; a name given
// twice; extents that overflow; a tensor of another type, with its name.
Gguf read_gguf(const std::string& path);

// Writes version 3 through AtomicFile: whole numbers as u32, other numbers as f32.
// Errors: a tensor that is not f32 on the cpu; those of AtomicFile.
void write_gguf(const std::string& path, const Gguf& file);

}  // namespace frugal::data
