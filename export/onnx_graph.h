// A network as ONNX sees it, before it becomes bytes: nodes, weights, inputs, outputs. onnx_file.h
// writes it.
#pragma once
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/tensor.h"

namespace frugal::exports {

constexpr int64_t kOpset = 13;

struct OnnxNode {
  using Attribute = std::variant<int64_t, double, std::vector<int64_t>, std::string>;
  std::string op;
  std::vector<std::string> inputs;  // empty: an optional input that is left out
  std::vector<std::string> outputs;
  std::vector<std::pair<std::string, Attribute>> attributes = {};
};

// An extent: a number, or the name of a size that the user chooses. A negative number without a
// name is an extent that follows from others.
struct OnnxExtent {
  int64_t size = -1;
  std::string name = {};
};

struct OnnxValue {
  std::string name;
  DType dtype = DType::f32;
  std::vector<OnnxExtent> shape = {};
};

struct OnnxGraph {
  std::vector<OnnxNode> nodes;                               // each after those that it reads
  std::vector<std::pair<std::string, Tensor>> initializers;  // in the order of their first use
  std::vector<OnnxValue> inputs, outputs;
  std::vector<std::pair<std::string, std::string>> metadata;  // metadata_props
};

}  // namespace frugal::exports
