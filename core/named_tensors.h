// Tensors by name. A batch holds such tensors beside its input.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace frugal {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// The tensor of that name; undefined if there is none.
inline Tensor find_tensor(const NamedTensors& tensors, std::string_view name) {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return tensor;
  return {};
}

}  // namespace frugal
