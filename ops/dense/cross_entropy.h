// Cross-entropy of logits and class indices, with label smoothing and an ignored index.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct CrossEntropyResult {
  Tensor loss;     // []: the mean (or sum) over the rows that are not ignored
  Tensor lse;      // [rows]: log(sum(exp(row))), what backward needs beside the logits
  Tensor correct;  // [] i64: rows whose largest logit (the first of equals) is the target's
  Tensor counted;  // [] i64: rows that are not ignored
};

// logits [..., C] f32 or f64, on CUDA f32 or bf16, a row for each target [...] i64; beside bf16
// loss, lse and row_weights are f32, else all are of one dtype. A row's loss is
//   l = (1 - s) (lse - x[target]) + s / C sum_c (lse - x[c])    with s = label_smoothing
// and the loss sum w l / sum w over the rows that are not ignored, or sum w l with options.sum;
// row_weights w [...], 1 without. A row of weight 0 adds nothing, whatever its l.
// If every row is ignored the mean is 0/0 = NaN, as in PyTorch; its gradient is 0.
// Takes no memory like the logits.
// Errors: a target outside [0, C) that is not ignore_index (on CUDA its row's loss and gradient are
// NaN instead); label_smoothing outside [0, 1].
// Ref: Szegedy et al. 2016 (label smoothing).
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options = {},
                                 const Tensor& row_weights = {});
// logits [rows, C], target and row_weights [rows].
void cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options,
                          const Tensor& row_weights);
void cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options,
                          const Tensor& row_weights);

// softmax(logits) = e^(logits - lse), from the lse of the forward.
// overwrite: as below. In the kernels y may be the logits.
Tensor cross_entropy_probabilities(const Tensor& logits, const Tensor& lse, bool overwrite = false);
void cross_entropy_probabilities_kernel(Cpu, const Tensor& logits, const Tensor& lse,
                                        const Tensor& y);
void cross_entropy_probabilities_kernel(Cuda, const Tensor& logits, const Tensor& lse,
                                        const Tensor& y);

// dy [] -> d(loss)/d(logits) [..., C], from the logits and lse of the forward, or from their
// probabilities (lse undefined), linearly; ignored rows get 0.
// overwrite: in the place of the logits, contiguous, whose version rises.
Tensor cross_entropy_backward(const Tensor& dy, const Tensor& logits, const Tensor& target,
                              const Tensor& lse, const CrossEntropyOptions& options = {},
                              const Tensor& row_weights = {}, bool overwrite = false);
// dx [rows, C] may be the logits.
void cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options, const Tensor& row_weights);
void cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options, const Tensor& row_weights);

// The `correct` of cross_entropy alone: logits [..., C], target [...] i64. Waits for the device; 0
// on `meta`.
int64_t count_correct(const Tensor& logits, const Tensor& target);

}  // namespace frugal::ops
