// Cross-entropy of logits and class indices, with label smoothing and an ignored index.
#pragma once
#include <utility>

#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// Weights in a cross-entropy: of rows [...] or of classes [C], or none. A tensor alone is weights
// of rows.
struct EntropyWeights {
  Tensor rows, classes;
  EntropyWeights() = default;
  EntropyWeights(Tensor of_rows)  // NOLINT(google-explicit-constructor)
      : rows(std::move(of_rows)) {}
  EntropyWeights(Tensor of_rows, Tensor of_classes)
      : rows(std::move(of_rows)), classes(std::move(of_classes)) {}
};

struct CrossEntropyResult {
  Tensor loss;     // []: the mean (or sum) over rows that are not ignored
  Tensor lse;      // [rows]: log(sum(exp(row))), which backward needs beside the logits
  Tensor correct;  // [] i64: number of rows whose largest logit is that of the target; the first of
                   // equal logits counts
  Tensor counted;  // [] i64: number of rows that are not ignored
  Tensor top;  // [rows] i64, with `with_top`: the class of the largest logit, the first of equals
};

// logits [..., C] f32, bf16 or f64, which CUDA has not, with one row for each target [...] i64.
// Beside bf16 logits, loss, lse and weights are f32, else all have one dtype. The loss of a row is
//   l = (1 - s) (lse - x[target]) + s / C sum_c (lse - x[c])    with s = label_smoothing
// The whole loss is sum w l / sum w over the rows that are not ignored, or sum w l with
// options.sum. weights.rows [...] holds the weights w; without it every w is 1. A row of weight 0
// adds nothing, whatever its l is.
// With weights.classes v [C] instead, a row weighs w = v[target], and in the term of
// the smoothing each class has its own weight:
//   w l = (1 - s) v[target] (lse - x[target]) + s / C sum_c v[c] (lse - x[c])
// If every row is ignored, the mean is 0/0 = NaN, as in PyTorch, and its gradient is 0. Allocates
// no tensor of the logits' size.
// Errors: a target outside [0, C) that is not ignore_index (on CUDA the loss and the gradient of
// that row are NaN instead); label_smoothing outside [0, 1]; weights of rows and of classes.
// Ref: Szegedy et al. 2016 (label smoothing); weights of classes as in PyTorch.
CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options = {},
                                 const EntropyWeights& weights = {}, bool with_top = false);
// logits [rows, C], target and weights.rows [rows]. weights.classes only with label smoothing, and
// then weights.rows holds the weights of the targets' classes.
void cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options,
                          const EntropyWeights& weights);
void cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options,
                          const EntropyWeights& weights);

// softmax(logits) = e^(logits - lse), with the lse of the forward pass.
// overwrite: as for cross_entropy_backward. In the kernels y may be the logits.
Tensor cross_entropy_probabilities(const Tensor& logits, const Tensor& lse, bool overwrite = false);
void cross_entropy_probabilities_kernel(Cpu, const Tensor& logits, const Tensor& lse,
                                        const Tensor& y);
void cross_entropy_probabilities_kernel(Cuda, const Tensor& logits, const Tensor& lse,
                                        const Tensor& y);

// dy [] -> d(loss)/d(logits) [..., C]. `logits` are those of the forward pass with their lse, or,
// if lse is undefined, their probabilities; the result is linear in the probabilities. Ignored rows
// get 0.
// overwrite: the result replaces the logits, which are contiguous; their version rises.
Tensor cross_entropy_backward(const Tensor& dy, const Tensor& logits, const Tensor& target,
                              const Tensor& lse, const CrossEntropyOptions& options = {},
                              const EntropyWeights& weights = {}, bool overwrite = false);
// logits, dx [rows, C]. dx may be the logits.
void cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options,
                                   const EntropyWeights& weights);
void cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options,
                                   const EntropyWeights& weights);

// Only the `correct` of cross_entropy: logits [..., C], target [...] i64. Waits for the device.
// Returns 0 on `meta`.
int64_t count_correct(const Tensor& logits, const Tensor& target);

}  // namespace frugal::ops
