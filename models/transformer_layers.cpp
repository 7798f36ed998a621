#include "models/transformer_layers.h"

#include "autograd/functions.h"
#include "models/dense.h"
#include "models/init.h"
#include "models/matrix_weight.h"

namespace frugal::models {

LayerNorm::LayerNorm(Init& init, int64_t width, double eps)
    : eps_(eps),
      weight_(register_parameter("weight", constant(init, {width}, 1))),
      bias_(register_parameter("bias", constant(init, {width}, 0))) {}

Variable LayerNorm::forward(Variable x, Context&) { return layer_norm(x, weight_, bias_, eps_); }

Variable dense_gelu(Dense& dense, const Variable& x, Context& context, frugal::Gelu kind) {
  if (dense.adapter() != nullptr) return gelu(dense.forward(x, context), kind);
  return linear_gelu(x, dense.matrix(), dense.bias(), kind);
}

namespace {

constexpr const char *kMask = "attention_mask", *kPositions = "position_ids";

AttentionOptions prepare(const SelfAttentionOptions& options, Context& context) {
  AttentionOptions attention;
  attention.causal = options.causal;
  if (options.dropout > 0 && context.training) {
    FRUGAL_CHECK(context.rng != nullptr, "[dropout] expected a random stream, got none");
    attention.dropout = options.dropout;
    attention.key = context.rng->next();
  }
  return attention;
}

}  // namespace

Variable self_attention(const Variable& q, const Variable& k, const Variable& v,
                        const SelfAttentionOptions& options, const Tensor& mask, Context& context) {
  const auto split = [heads = options.heads](const Variable& x) {
    return reshape(x, {x.size(0), x.size(1), heads, x.size(2) / heads});
  };
  const Variable y = scaled_dot_product_attention(split(q), split(k), split(v), mask, {},
                                                  prepare(options, context));
  return reshape(y, q.shape());
}

Variable self_attention(const Variable& qkv, const SelfAttentionOptions& options,
                        const Tensor& mask, const Variable& bias, Context& context) {
  const int64_t heads = 3 * options.heads, width = qkv.size(2) / 3;
  const Variable split = reshape(qkv, {qkv.size(0), qkv.size(1), heads, qkv.size(2) / heads});
  const Variable y = qkv_attention(split, mask, bias, prepare(options, context));
  return reshape(y, {qkv.size(0), qkv.size(1), width});
}

Variable first_token_attention(const Variable& qkv, const SelfAttentionOptions& options,
                               Context& context) {
  const int64_t h = options.heads, width = qkv.size(2) / 3;
  const Variable split = reshape(qkv, {qkv.size(0), qkv.size(1), 3 * h, width / h});
  const Variable q = slice(slice(split, 2, 0, h), 1, 0, 1);
  const Variable y =
      scaled_dot_product_attention(q, slice(split, 2, h, 2 * h), slice(split, 2, 2 * h, 3 * h), {},
                                   {}, prepare(options, context));
  return reshape(y, {qkv.size(0), 1, width});
}

Variable first_token(const Variable& x) { return concat({slice(x, 1, 0, 1)}, 1); }

Variable as_activation(const Variable& x, const Context& context) {
  return context.dtype == DType::bf16 ? cast(x, context.dtype) : x;
}

Tensor positions(int64_t n, Device device) {
  CategoryScope scope(Category::parameter);
  const Tensor ids = Tensor::empty({n}, DType::i64, drawn_on(device));
  if (int64_t* values = ids.mut<int64_t>(); values != nullptr)
    for (int64_t i = 0; i < n; ++i) values[i] = i;
  return to_device(ids, device);
}

void check_ids(const char* model, const Tensor& ids, int64_t longest) {
  FRUGAL_CHECK(ids.dim() == 2 && ids.dtype() == DType::i64,
               "[{}] expected token ids [N, T] i64, got {}", model, describe(ids));
  FRUGAL_CHECK(ids.size(1) >= 1 && ids.size(1) <= longest,
               "[{}] expected sequences of 1 to {} tokens, got {}", model, longest, ids.size(1));
}

Tensor checked_extra(const char* model, const Context& context, const char* name,
                     const Tensor& ids) {
  const Tensor extra = context.extra(name);
  if (extra.defined())
    FRUGAL_CHECK(extra.dtype() == DType::i64 && extra.shape() == ids.shape(),
                 "[{}] expected {} to be {} i64 as the ids are, got {}", model, name, ids.shape(),
                 describe(extra));
  return extra;
}

Tensor positions_in_samples(const char* model, const Context& context, const Tensor& ids) {
  Tensor positions = checked_extra(model, context, kPositions, ids);
  FRUGAL_CHECK(!positions.defined() || !context.extra(kMask).defined(),
               "[{}] expected position_ids without an attention_mask, got both", model);
  return positions;
}

Tensor decoder_mask(const Context& context) {
  const Tensor positions = context.extra(kPositions);
  if (!positions.defined()) return context.extra(kMask);
  return positions.view({positions.size(0), positions.size(1), 1});
}

void check_heads(const char* model, int64_t width, int64_t heads) {
  FRUGAL_CHECK(heads >= 1 && width >= 1 && width % heads == 0,
               "[{}] expected heads that divide the width {}, got {}", model, width, heads);
}

}  // namespace frugal::models
