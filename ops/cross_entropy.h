// Cross-entropy of logits and class indices, with label smoothing and an ignored index.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct CrossEntropyResult {
  Tensor loss;     // [] like logits: the mean over the rows that are not ignored
  Tensor lse;      // [N] like logits: log(sum(exp(row))), what backward needs beside the logits
  Tensor correct;  // [] i64: rows whose largest logit (the first of equals) is the target's
  Tensor counted;  // [] i64: rows that are not ignored
};

// logits [N, C] f32 or f64, target [N] i64. A row's loss is
// (1 - s) (lse - x[target]) + s / C sum_c (lse - x[c]) with s = label_smoothing.
// If every row is ignored the loss is 0/0 = NaN, as in PyTorch; its gradient is 0.
// Errors: a target outside [0, C) that is not ignore_index; label_smoothing outside [0, 1].
// Ref: Szegedy et al. 2016 (label smoothing).
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options = {});
void cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options);
void cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options);

// dy [] -> d(loss)/d(logits) [N, C], from the logits and lse of the forward; ignored rows get 0.
Tensor cross_entropy_backward(const Tensor& dy, const Tensor& logits, const Tensor& target,
                              const Tensor& lse, const CrossEntropyOptions& options = {});
void cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options);
void cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options);

// The `correct` of cross_entropy alone: logits [N, C], target [N] i64. cpu only: 0 on `meta`.
int64_t count_correct(const Tensor& logits, const Tensor& target);

}  // namespace frugal::ops
