// What the transformers of the zoo share.
#pragma once
#include "autograd/transformer_functions.h"
#include "models/dense.h"

namespace frugal::models {

// [..., H] -> [..., H]. Parameters: weight, bias [H].
class LayerNorm : public Module {
 public:
  LayerNorm(Init& init, int64_t width, double eps);
  Variable forward(Variable x, Context& context) override;

 private:
  double eps_;
  Variable weight_, bias_;
};

// gelu(dense(x)) in one pass.
Variable dense_gelu(const Dense& dense, const Variable& x, Gelu kind = Gelu::exact);

struct SelfAttentionOptions {
  int64_t heads = 1;
  double dropout = 0;  // of the probabilities
  bool causal = false;
};
// Attention within each sequence, heads side by side: q, k, v [N, T, H] -> [N, T, H]. mask as
// scaled_dot_product_attention has it. Errors: dropout in training without a random stream.
Variable self_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SelfAttentionOptions& options, const Tensor& mask, Context& context);
// The same of one product: qkv [N, T, 3H], its thirds q, k and v; bias too as there.
Variable self_attention(const Variable& qkv, const SelfAttentionOptions& options,
                        const Tensor& mask, const Variable& bias, Context& context);

// 0, 1, ..., n - 1, i64.
Tensor positions(int64_t n, Device device);

// Errors, naming `model`: ids not [N, T] i64 with 1 <= T <= longest.
void check_ids(const char* model, const Tensor& ids, int64_t longest);
// The batch's tensor of that name, or undefined. Errors: not i64, or not of the ids' shape.
Tensor checked_extra(const char* model, const Context& context, const char* name,
                     const Tensor& ids);
// Errors: a width that the heads do not divide.
void check_heads(const char* model, int64_t width, int64_t heads);

}  // namespace frugal::models
