// Scaled dot-product attention by tiles: softmax(q k^T scale + mask) v. The matrix of all scores is
// never in memory. f32 and bf16 (SIMD, sums in f32) and f64 (plain loops, the reference).
// Ref: Vaswani et al. 2017, equation 1; Dao et al. 2022, algorithms 1 and 4.
#pragma once
#include <limits>

#include "core/host_device.h"
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// q [N, T, heads, D], k and v [N, S, heads / g, D], with any strides; no copy is made if the last
// axis is dense. Heads g i to g i + g - 1 of q share head i of k and v (Ainslie et al. 2023). mask:
// undefined, or
//   [N, S] i64         0 hides a key
//   [N, T, 1] i64      with `causal`: how many keys before its own place a query sees at most; a
//                      number below 0 counts as 0. So samples that share a row are kept apart: a
//                      query sees as many as its sample has before it
//   [heads or 1, T, S] or [N, heads or 1, T, S] of the dtype of q, which is added to the scores
// bias: undefined, or [heads, T, S] of the dtype of q (or f32 beside bf16), which is added, too.
struct AttentionInputs {
  Tensor q, k, v, mask, bias;
};

// y has the shape of q and is contiguous. lse [N, heads, T] (f32, or f64 if q is) is the logarithm
// of each row's sum of exponentials. A row whose keys are all hidden has y = 0 and lse = infinity.
// Errors: shapes, dtypes or devices that do not fit; dropout outside [0, 1); a window without
// `causal`, or a mask that needs it; a soft cap with what it does not go with; on CUDA, D above
// 256.
struct AttentionOutput {
  Tensor y, lse;
};
AttentionOutput attention(const AttentionInputs& in, const AttentionOptions& options);

// dq, dk, dv: written; they have the shapes of q, k and v, and any strides with a dense last axis.
// dbias: undefined, or contiguous, f32 or f64, and written. If y and lse of `out` are undefined,
// they are computed again from the q, k and v given here. This matters where q and k were rebuilt
// with errors: probabilities then still add up to 1, and their gradients to 0. (At 4 bits this
// removes most of the bias, and up to 9/10 of the variance that the exact lse would leave.)
// lse is rounded by up to |lse| 2^-24. Rows where that matters (is_coarse) take their sums of
// exponentials again. cuDNN's engines do not, and take bf16 without numbers that are added.
struct AttentionGradients {
  Tensor dq, dk, dv, dbias;
};
void attention_backward(const Tensor& dy, const AttentionInputs& in, const AttentionOutput& out,
                        const AttentionOptions& options, const AttentionGradients& gradients);

// Is a row's lse too large to tell e^(score - lse)? A mask that adds the least finite float to all
// keys of a row leaves nothing of the sum in it.
FRUGAL_HD bool is_coarse(float lse) {
  return !(lse > -0x1p12f && lse < 0x1p12f) && lse != std::numeric_limits<float>::infinity();
}

// What the kernels take. scale is not 0; masks are contiguous; `keep` [N, S] i64; `reach` [N, T]
// i64, the keys before its own place that a query sees at most; `added` [N or 1, heads or 1, T, S]
// is f32 or f64 like bias.
struct AttentionProblem {
  Tensor q, k, v, keep, reach, added, bias;
  AttentionOptions options;
  int64_t n = 0, heads = 0, t = 0, s = 0, d = 0;
  int64_t key_heads = 0, group = 1;  // the heads of k and v, and how many of q's share one
};
void attention_kernel(Cpu, const AttentionProblem& p, const AttentionOutput& out);
void attention_kernel(Cuda, const AttentionProblem& p, const AttentionOutput& out);
void attention_backward_kernel(Cpu, const Tensor& dy, const AttentionProblem& p,
                               const AttentionOutput& out, const AttentionGradients& gradients);
void attention_backward_kernel(Cuda, const Tensor& dy, const AttentionProblem& p,
                               const AttentionOutput& out, const AttentionGradients& gradients);

}  // namespace frugal::ops
