// From a network to ONNX, opset 13: the ops of an evaluation pass are written down as nodes.
//
// Inside Frugal images are NHWC and weights [K, R, S, C]. In ONNX they are NCHW and [K, C, R, S]: a
// value keeps the order of axes that its node gives it, and a Transpose is made only where the next
// node needs another order. Weights have PyTorch's names and layouts. What follows from weights
// alone is computed here.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "export/onnx_graph.h"
#include "models/module.h"

namespace frugal::exports {

// Which extents of a network's inputs its user may choose. `name` gets `example` in the first pass,
// and `other` in a pass of its own. What differs between these passes depends on the size.
struct FreeSize {
  std::string name;  // "batch"
  int64_t example = 2, other = 3;
  int64_t most = INT64_MAX;  // the network takes no larger one
};

struct OnnxInputs {
  std::vector<FreeSize> sizes;
  // Tensors on the cpu for given values of `sizes`, in their order: the input of forward() first,
  // then the context's extras, each under its name. Values must differ from call to call, so that a
  // result that does not come from a recorded op is noticed. Images are NHWC here; a floating input
  // of 4 axes is declared as NCHW.
  std::function<NamedTensors(const std::vector<int64_t>& sizes)> make;
};

// The graph of the module's evaluation, with one output of the name `output`. Inputs that the
// network does not read are left out. The initializers are views of the module's tensors where
// their layouts are equal.
// Errors: an op that has no form in ONNX, by its name; a result that does not come from recorded
// ops; a shape that depends on `sizes` in a way that ONNX cannot say.
OnnxGraph to_onnx(Module& module, const OnnxInputs& inputs, const std::string& output = "logits");

// Inputs as the file wants them: NHWC becomes NCHW.
NamedTensors as_in_onnx(const NamedTensors& inputs);

// Names of the ops that to_onnx() can write, sorted.
std::vector<std::string> onnx_ops();

}  // namespace frugal::exports
