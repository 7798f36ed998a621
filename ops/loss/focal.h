// Focal loss of logits and class indices: cross-entropy in which easy rows count less.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct FocalResult {
  Tensor loss;      // [] like logits, f32 for bf16
  Tensor gradient;  // like logits: d(loss)/d(logits), which backward needs
};

// logits x [..., C] f32, bf16 or f64, which CUDA has not, with one row for each target t [...] i64;
// class_weights w [C], f32 beside bf16 logits, else of the dtype of the logits, or undefined: 1.
// With p = softmax(x)[t], the loss of a row is
//   l = -w_t (1 - p)^gamma log p
// The whole loss is the mean over the rows that are not ignored (or the sum with options.sum);
// weights do not change the divisor. Without such rows the mean is NaN and its gradient 0.
// Errors: a target outside [0, C) that is not ignored (on CUDA loss and gradient of that row are
// NaN); gamma below 0; shapes or dtypes that do not fit.
// Ref: Lin et al. 2017, "Focal Loss for Dense Object Detection", equation 5, for several classes.
FocalResult focal_cross_entropy(const Tensor& logits, const Tensor& target,
                                const FocalOptions& options = {}, const Tensor& class_weights = {});
// logits [rows, C], target [rows].
void focal_cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                                const FocalResult& result, const FocalOptions& options,
                                const Tensor& class_weights);
void focal_cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                                const FocalResult& result, const FocalOptions& options,
                                const Tensor& class_weights);

}  // namespace frugal::ops
