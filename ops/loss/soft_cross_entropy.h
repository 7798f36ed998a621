// Cross-entropy of logits and shares of the classes, with label smoothing.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct SoftCrossEntropyResult {
  Tensor loss;      // [] like logits, f32 for bf16
  Tensor gradient;  // like logits: d(loss)/d(logits), which backward needs
};

// logits x [..., C] f32, bf16 or f64, which CUDA has not; target of the same shape holds the share
// t of each class, f32 beside bf16 logits, else of the dtype of the logits. A row whose first share
// is below 0 does not count. The loss of a row is, with s = label_smoothing and lse = log sum e^x,
//   l = sum_c ((1 - s) t_c + s / C) (lse - x_c)
// which equals cross_entropy() where one share is 1. The whole loss is the mean over the rows that
// count, as in PyTorch. Without such rows it is NaN, and its gradient is 0. Shares need not add up
// to 1; a share of 0 adds nothing, whatever its logit is.
// Errors: a share in a row that counts that is negative or not finite (CUDA does not wait to check
// this, and the loss is NaN); shapes or dtypes that differ; label_smoothing outside [0, 1].
// Ref: Szegedy et al. 2016 (label smoothing).
SoftCrossEntropyResult soft_cross_entropy(const Tensor& logits, const Tensor& target,
                                          double label_smoothing = 0);
// logits and target [rows, C].
void soft_cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                               const SoftCrossEntropyResult& result, double label_smoothing);
void soft_cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                               const SoftCrossEntropyResult& result, double label_smoothing);

}  // namespace frugal::ops
