// What the transformers of the zoo share.
#pragma once
#include "autograd/transformer_functions.h"
#include "models/dense.h"

namespace frugal::models {

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

// gelu(dense(x)) in one pass.
Variable dense_gelu(const Dense& dense, const Variable& x, frugal::Gelu kind = frugal::Gelu::exact);

struct SelfAttentionOptions {
  int64_t heads = 1;
  double dropout = 0;  // of the probabilities
  bool causal = false;
};
// Attention, heads side by side: q [N, T, H], k and v [N, S, H] -> [N, T, H]. mask as
// scaled_dot_product_attention has it. Errors: dropout in training without a random stream.
Variable self_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SelfAttentionOptions& options, const Tensor& mask, Context& context);
// The same of one product: qkv [N, T, 3H], its thirds q, k and v; bias too as there.
Variable self_attention(const Variable& qkv, const SelfAttentionOptions& options,
                        const Tensor& mask, const Variable& bias, Context& context);

// What that gives the first token of each sequence: [N, 1, H].
Variable first_token_attention(const Variable& qkv, const SelfAttentionOptions& options,
                               Context& context);

// The first token of each sequence: x [N, T, H] -> [N, 1, H]. A copy: a view that somebody keeps
// would keep all tokens. Where a model reads no other of its last layer, that layer works on this
// one alone, with keys and values of all.
Variable first_token(const Variable& x);

// x as activations are: bf16 where the context says so, else as it is.
Variable as_activation(const Variable& x, const Context& context);

// 0, 1, ..., n - 1, i64, of category `parameter`.
Tensor positions(int64_t n, Device device);

// Errors, naming `model`: ids not [N, T] i64 with 1 <= T <= longest.
void check_ids(const char* model, const Tensor& ids, int64_t longest);
// The batch's tensor of that name, or undefined. Errors: not i64, or not of the ids' shape.
Tensor checked_extra(const char* model, const Context& context, const char* name,
                     const Tensor& ids);
// Errors: a width that the heads do not divide.
void check_heads(const char* model, int64_t width, int64_t heads);

}  // namespace frugal::models
