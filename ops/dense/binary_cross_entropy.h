// Binary cross-entropy of logits: each element is a yes-or-no question (multi-label targets).
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct BinaryCrossEntropyResult {
  Tensor loss;      // [] like logits, f32 for bf16
  Tensor gradient;  // like logits: d(loss)/d(logits), what backward needs
};

// logits x and target t of one shape, f32 or f64, t in [0, 1]. An element's loss is
//   l = -t log sigmoid(x) - (1 - t) log sigmoid(-x) = max(x, 0) - x t + log(1 + e^-|x|)
// and the loss sum w l / sum w over all elements, or sum w l with options.sum. row_weights w, one
// for each item of the leading axis, like the loss; 1 without. A row of weight 0 adds nothing,
// whatever its logits. Weights that add up to 0 make the mean NaN and the gradient 0.
// Errors: a target outside [0, 1] (on CUDA, which does not wait to look, the loss is NaN); shapes
// or dtypes differ; row_weights for logits without axes.
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

// dy [] -> dy * gradient.
Tensor binary_cross_entropy_backward(const Tensor& dy, const Tensor& gradient);
void binary_cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& gradient,
                                          const Tensor& dx);
void binary_cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& gradient,
                                          const Tensor& dx);

}  // namespace frugal::ops
