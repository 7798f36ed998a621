// Binary cross-entropy of logits: each element is a yes-or-no question (multi-label targets).
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct BinaryCrossEntropyResult {
  Tensor loss;      // [] like logits, f32 for bf16
  Tensor gradient;  // like logits: d(loss)/d(logits), which backward needs
};

// logits x and target t have one shape, f32 or f64; t is in [0, 1]. The loss of an element is
//   l = -t log sigmoid(x) - (1 - t) log sigmoid(-x) = max(x, 0) - x t + log(1 + e^-|x|)
// The whole loss is sum w l / sum w over all elements, or sum w l with options.sum. row_weights
// holds the weights w, one for each item of the leading axis, with the dtype of the loss; without
// it every w is 1. A row of weight 0 adds nothing, whatever its logits are. If the weights add up
// to 0, the mean is NaN and the gradient is 0.
// Errors: a target outside [0, 1] (CUDA does not wait to check this, and the loss is NaN); shapes
// or dtypes that differ; row_weights for logits without axes.
BinaryCrossEntropyResult binary_cross_entropy(const Tensor& logits, const Tensor& target,
                                              const BinaryCrossEntropyOptions& options = {},
                                              const Tensor& row_weights = {});
void binary_cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                                 const BinaryCrossEntropyResult& result,
                                 const BinaryCrossEntropyOptions& options,
                                 const Tensor& row_weights);
void binary_cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                                 const BinaryCrossEntropyResult& result,
                                 const BinaryCrossEntropyOptions& options,
                                 const Tensor& row_weights);

// dy [] -> dy * gradient, of the shape of the logits.
Tensor binary_cross_entropy_backward(const Tensor& dy, const Tensor& gradient);
void binary_cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& gradient,
                                          const Tensor& dx);
void binary_cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& gradient,
                                          const Tensor& dx);

}  // namespace frugal::ops
