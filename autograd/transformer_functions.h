// The differentiable functions of sequence models. Tokens are rows: x [..., H]; heads are the axis
// before the last. f32 and f64; each function's formula, saved bytes and recipe stand in its .cpp
// (autograd/functions/).
#pragma once
#include <optional>

#include "autograd/variable.h"
#include "core/rng.h"
#include "ops/options.h"

namespace frugal {

// ---- lookup (functions/embedding.cpp)
// ids [...] i64, weight [V, H] -> [..., H]. Rows equal to padding_idx get no gradient.
// Saves: ids.  Errors: an id outside [0, V).
Variable embedding(const Tensor& ids, const Variable& weight, int64_t padding_idx = -1);

// ---- normalisation over the last axis (functions/layer_norm.cpp): x [..., H], weight and bias [H]
// or undefined.  Saves: x, mean and 1/std of each row (rms_norm: 1/rms).  Under a lossy policy:
// (x - mean)/std and 1/std, unless x costs nothing (functions/normalized_rows.h).  Recipe: linear
// in what is saved of x.
Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    double eps = 1e-5);
Variable layer_norm_relu(const Variable& x, const Variable& weight, const Variable& bias,
                         double eps = 1e-5);
// rms_norm scales by weight + offset. Gemma's weights are counted from 1: offset 1. Its sum with
// an offset is saved, H numbers.
Variable rms_norm(const Variable& x, const Variable& weight, double eps = 1e-6, double offset = 0);

// ---- linear(x) and an activation of it (functions/linear_activation.cpp). x [..., I], weight
// [O, I], bias [O] or undefined -> [..., O].
// linear_gelu saves x, weight and the linear output; its recipe applies gelu to that output.
// linear_relu saves x, weight and the sign, 1 bit an element.
Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias,
                     Gelu kind = Gelu::exact);
Variable linear_relu(const Variable& x, const Variable& weight, const Variable& bias);

// act(gate) up, for gate and up of one shape: SwiGLU with Gate::silu, GeGLU with the others
// (functions/gated.cpp).  Saves: gate and up (or two factors, where a policy makes gate lossy and
// nobody knows by how much). Recipe: yes, smooth in gate.
// Ref: Shazeer 2020, equations 5 and 6.
Variable gated(const Variable& gate, const Variable& up, Gate kind = Gate::silu);

// ---- attention (functions/attention.cpp); AttentionOptions: ops/sequence/attention.h
// softmax(q k^T scale + mask) v: q [N, T, heads, D], k and v [N, S, heads or a divisor of them, D]
// -> [N, T, heads, D]. Neighbouring heads of q share a head of k and v.
// mask: undefined; [N, S] i64, 0 hides a key (padding); [N, T, 1] i64, how many keys before its own
// place a query sees at most (samples that share a row), with `causal`; or [heads or 1, T, S] or
// [N, heads or 1, T, S] of q's dtype, added to the scores (a constant: no gradient). `bias`
// [heads, T, S] is added in the same way and has a gradient. A row whose keys are all hidden gives
// zeros.
// Computed in tiles: no [T, S] matrix of all heads is ever held.
// Saves: q, k and v; the output and one log-sum-exp a row, unless q, k or v are certainly rounded.
Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const Tensor& mask = {}, const Variable& bias = {},
                                      const AttentionOptions& options = {});

// scaled_dot_product_attention() of the parts of one tensor qkv [N, T, 3 heads, D], which holds the
// heads of q, then those of k, then those of v. Nothing is copied, and one tensor is saved for the
// three.
Variable qkv_attention(const Variable& qkv, const Tensor& mask = {}, const Variable& bias = {},
                       const AttentionOptions& options = {});

// Rotary positions: x [N, T, heads, D], pairs (i, i + D/2) turned by position * base^(-2i/D), or by
// what RotaryOptions (ops/options.h) make of it; positions [T] or [N, T] i64, or undefined
// (0..T-1). Saves: positions, if given. Recipe: linear, where x has one. Ref: Su et al. 2021, eq.
// 34 (pairing of halves as in GPT-NeoX).
Variable rotary_embedding(const Variable& x, const Tensor& positions = {},
                          const RotaryOptions& options = {});

// ---- convolution of sequences (functions/conv1d.cpp): x [N, L, C], weight [K, R, C/groups], bias
// [K] or undefined -> [N, OL, K], OL = floor((L + 2 padding - dilation (R - 1) - 1) / stride) + 1.
// Saves: x, weight.
Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias, int64_t stride = 1,
                int64_t padding = 0, int64_t dilation = 1, int64_t groups = 1);

// ---- normalisation over a sample's rows and a group's channels (functions/group_norm.cpp):
// x [N, ..., C], weight and bias [C] or undefined.  Saves and recipe: as layer_norm, with mean and
// 1/std of each group.
Variable group_norm(const Variable& x, int64_t groups, const Variable& weight, const Variable& bias,
                    double eps = 1e-5);

}  // namespace frugal
