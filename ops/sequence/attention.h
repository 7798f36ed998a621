// Scaled dot-product attention by tiles: softmax(q k^T scale + mask) v, without the matrix of all
// scores. f32 and bf16 (SIMD, sums in f32) and f64 (plain loops, the reference).
// Ref: Vaswani et al. 2017, equation 1; Dao et al. 2022, algorithms 1 and 4.
#pragma once
#include "core/rng.h"
#include "core/tensor.h"

namespace frugal {

struct AttentionOptions {
  bool causal = false;  // query t sees keys up to t + S - T
  double scale = 0;     // 0: 1 / sqrt(D)
  double dropout = 0;   // of the probabilities; REQUIRES `key` where it is not 0
  RngKey key{};         // element ((n heads + h) T + t) S + s of the stream
};

namespace ops {

// q [N, T, heads, D], k and v [N, S, heads, D]: any strides; where the last axis is dense nothing
// is copied. mask: undefined; [N, S] i64, 0 hides a key; or [heads or 1, T, S] or [N, heads or 1,
// T, S] of q's dtype, added to the scores. bias: undefined or [heads, T, S] of q's dtype (or f32
// beside bf16), added.
struct AttentionInputs {
  Tensor q, k, v, mask, bias;
};

// y like q, contiguous; lse [N, heads, T] (f32, f64 where q is): the logarithm of each row's sum of
// exponentials. A row whose keys are all hidden gives zeros, and infinity for lse.
// Errors: shapes, dtypes or devices that do not go together; dropout outside [0, 1); on CUDA, D
// above 256.
struct AttentionOutput {
  Tensor y, lse;
};
AttentionOutput attention(const AttentionInputs& in, const AttentionOptions& options);

// dq, dk, dv: of q's, k's and v's shapes, any strides with a dense last axis, written. dbias:
// undefined, or contiguous, f32 or f64, written. What an undefined `out` held comes from q, k and v
// as they are here: where they were rebuilt with errors, probabilities still add up to 1 and so do
// their gradients to 0. (At 4 bits that takes away most of the bias and up to 9/10 of the variance
// that the exact sums leave.)
struct AttentionGradients {
  Tensor dq, dk, dv, dbias;
};
void attention_backward(const Tensor& dy, const AttentionInputs& in, const AttentionOutput& out,
                        const AttentionOptions& options, const AttentionGradients& gradients);

// What the kernels take. scale is not 0; masks contiguous; `keep` [N, S] i64, `added` [N or 1,
// heads or 1, T, S], f32 or f64 as bias is.
struct AttentionProblem {
  Tensor q, k, v, keep, added, bias;
  AttentionOptions options;
  int64_t n = 0, heads = 0, t = 0, s = 0, d = 0;
};
void attention_kernel(Cpu, const AttentionProblem& p, const AttentionOutput& out);
void attention_kernel(Cuda, const AttentionProblem& p, const AttentionOutput& out);
void attention_backward_kernel(Cpu, const Tensor& dy, const AttentionProblem& p,
                               const AttentionOutput& out, const AttentionGradients& gradients);
void attention_backward_kernel(Cuda, const Tensor& dy, const AttentionProblem& p,
                               const AttentionOutput& out, const AttentionGradients& gradients);

}  // namespace ops
}  // namespace frugal
