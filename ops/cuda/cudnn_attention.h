// The forward pass of attention by cuDNN's fused engines, on the compute stream. In emulated builds
// tests/cuda_emulator stands in for the library. The backward pass is always that of
// ops/sequence/attention_backward.cu.
#pragma once
#include "core/shape.h"

namespace frugal::ops::cudnn {

// y = softmax(scale q k^T) v and lse [N, heads, T] f32, the logarithms of the rows' sums of
// exponentials. q, k, v, y bf16 [N, T or S, heads, D].
struct Attention {
  int64_t n = 0, t = 0, s = 0, heads = 0, d = 0;  // REQUIRES: all at least 1
  Shape q, k, v, y;                               // strides in elements; the last 1
  bool causal = false;                            // query t sees keys up to t
  float scale = 1;
};
struct AttentionData {
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void *y = nullptr, *lse = nullptr;
};

// Returns whether attention was computed. Nothing is written where cuDNN has no engine, or where
// addresses or strides are no multiples of 16 bytes.
[[nodiscard]] bool attend(const Attention& problem, const AttentionData& data);

}  // namespace frugal::ops::cudnn
