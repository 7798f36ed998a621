// Attention on CUDA by cuDNN's fused engines, where they fit the problem: bf16, no dropout, no
// window or soft cap, a head of k and v for each of q, and no mask but hidden keys and the causal
// one.
#pragma once
#include "ops/sequence/attention.h"

namespace frugal::ops {

// Return whether cuDNN computed the pass. Where it has no engine or fails, this is counted
// (ops/library_fallbacks.h), and our kernels have to compute the pass.  Errors: OutOfMemory.
[[nodiscard]] bool attention_by_cudnn(const AttentionProblem& p, const AttentionOutput& out);
// If y and lse of `out` are undefined, they are computed again.
[[nodiscard]] bool attention_backward_by_cudnn(const Tensor& dy, const AttentionProblem& p,
                                               const AttentionOutput& out,
                                               const AttentionGradients& to);

}  // namespace frugal::ops
