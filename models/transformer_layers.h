// Shared by the transformers of the zoo.
#pragma once
#include "autograd/transformer_functions.h"
#include "models/init.h"
#include "models/module.h"

namespace frugal::models {

class Dense;  // dense.h

// [..., H] -> [..., H]. Parameters: weight, bias [H].
class LayerNorm : public Module {
 public:
  LayerNorm(Init& init, int64_t width, double eps);
  explicit LayerNorm(int64_t width, double eps = 1e-5) : LayerNorm(default_init(), width, eps) {}
  Variable forward(Variable x, Context& context) override;

 private:
  double eps_;
  Variable weight_, bias_;
};

// gelu(dense(x)), in one pass where the layer carries no adapter.
Variable dense_gelu(Dense& dense, const Variable& x, Context& context,
                    frugal::Gelu kind = frugal::Gelu::exact);

struct SelfAttentionOptions {
  int64_t heads = 1;
  double dropout = 0;  // dropout of the probabilities
  bool causal = false;
};
// Attention with heads side by side: q [N, T, H], k and v [N, S, H] -> [N, T, H]. mask: as in
// scaled_dot_product_attention(). Errors: dropout in training without a random stream.
Variable self_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SelfAttentionOptions& options, const Tensor& mask, Context& context);
// Takes q, k and v as the thirds of one product, qkv [N, T, 3H]. bias: as in
// scaled_dot_product_attention().
Variable self_attention(const Variable& qkv, const SelfAttentionOptions& options,
                        const Tensor& mask, const Variable& bias, Context& context);

// self_attention() for the first token of each sequence only: qkv [N, T, 3H] -> [N, 1, H].
Variable first_token_attention(const Variable& qkv, const SelfAttentionOptions& options,
                               Context& context);

// The first token of each sequence: x [N, T, H] -> [N, 1, H]. This is a copy, because a saved view
// would keep all tokens alive. If a model reads only the first token of its last layer, that layer
// computes only this token, with the keys and values of all tokens.
Variable first_token(const Variable& x);

// x in the dtype of activations: bf16 if the context says so, else unchanged.
Variable as_activation(const Variable& x, const Context& context);

// 0, 1, ..., n - 1, i64, of category `parameter`.
Tensor positions(int64_t n, Device device);

// Errors: ids that are not [N, T] i64 with 1 <= T <= longest. Messages name `model`.
void check_ids(const char* model, const Tensor& ids, int64_t longest);
// The extra tensor `name` of the batch, or undefined. Errors: not i64, or not of the shape of the
// ids.
Tensor checked_extra(const char* model, const Context& context, const char* name,
                     const Tensor& ids);
// Samples that share a row: the batch's extra "position_ids" [N, T] i64, which counts from 0 in
// each sample, or undefined. Errors: those of checked_extra(); an attention_mask beside it.
Tensor positions_in_samples(const char* model, const Context& context, const Tensor& ids);
// What attention of a decoder takes as its mask: the batch's attention_mask, or [N, T, 1], by which
// no token sees one of another sample in its row.
Tensor decoder_mask(const Context& context);
// Errors: heads that do not divide the width.
void check_heads(const char* model, int64_t width, int64_t heads);

}  // namespace frugal::models
