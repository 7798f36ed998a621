// Attention by cuDNN's fused engines, on the compute stream. In emulated builds
// tests/cuda_emulator stands in for the library.
#pragma once
#include "core/shape.h"

namespace frugal::ops::cudnn {

// y = softmax(scale q k^T + hidden) v and lse [N, heads, T] f32, the logarithms of the rows' sums
// of exponentials. q, k, v, y and their gradients bf16 [N, T or S, heads, D].
struct Attention {
  int64_t n = 0, t = 0, s = 0, heads = 0, d = 0;  // REQUIRES: all at least 1
  Shape q, k, v, y;                               // strides in elements; the last one is 1
  Shape dq, dk, dv, dy;                           // strides of the gradients, for the backward pass
  bool causal = false;                            // query t sees keys up to t
  bool hides = false;                             // whether there is `hidden`
  float scale = 1;
};
struct AttentionData {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *y = nullptr, *lse = nullptr;
  // f32 [N, S], for the backward pass [N, T, S]: 0, or the lowest number where a key is hidden.
  const void* hidden = nullptr;
};
// y and lse of `forward` are read. Scratch: delta f32 [N, heads, T] and, unless deterministic()
// (ops/precision.h), sum_of_dq f32 [N, heads, T, D], which REQUIRES zeros.
struct AttentionGradientData {
  AttentionData forward;
  const void* dy = nullptr;
  void *delta = nullptr, *sum_of_dq = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

// Return whether cuDNN computed the pass. Nothing is written where it has no engine, or where
// addresses or strides are no multiples of 16 bytes.
[[nodiscard]] bool attend(const Attention& problem, const AttentionData& data);
// Where deterministic(), engines keep the gradient of the scores: 2 bytes for each of N heads T S.
[[nodiscard]] bool attend_backward(const Attention& problem, const AttentionGradientData& data);

}  // namespace frugal::ops::cudnn
