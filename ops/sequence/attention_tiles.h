// Attention in f32 by tiles of one head: internal to ops/sequence/attention.cpp.
#pragma once
#include "ops/sequence/attention.h"

namespace frugal::ops {

// f32 or bf16, with sums in f32. The heads are spread over the threads (in the backward pass those
// of k and v). A thread holds the keys, values and queries of its head as f32: (T + S) D numbers
// and a few tiles.
void attention_tiles(const AttentionProblem& p, const AttentionOutput& out);
void attention_backward_tiles(const Tensor& dy, const AttentionProblem& p,
                              const AttentionOutput& out, const AttentionGradients& gradients);

// Count on `meta` the buffers of all threads. given: are y and lse? adds_to_bias: is dbias wanted?
void count_attention_tiles(const AttentionProblem& p);
void count_attention_backward_tiles(const AttentionProblem& p, bool given, bool adds_to_bias);

}  // namespace frugal::ops
