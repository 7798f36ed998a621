#include "ops/sequence/attention.h"

#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/copy.h"

namespace frugal {
namespace {

// y = softmax(q k^T scale + mask + bias) v. Saves q, k, v and y, which the next layer saves anyway,
// and a log-sum-exp for each row. The backward pass computes the probabilities again, tile by tile.
// They are not linear in what is saved, so lossy codes leave a bias. It is small because the
// probabilities are normalized anew.
enum Slot { kQ, kK, kV, kY, kLse, kMask, kBias };
// The slots where q, k and v are parts of one tensor, which is kept as a whole.
enum PackedSlot { kQkv, kPackedY, kPackedLse, kPackedMask, kPackedBias };

Tensor value_of(const Variable& x) { return x.defined() ? x.value() : Tensor(); }

// A save of [N, T, heads, D].
Save by_head(Save x) { return std::move(x).with_channel_axes(2); }

void describe(TracedOp& op, const Tensor& mask, const AttentionOptions& options) {
  op.tensor(mask);
  op.set("causal", options.causal);
  op.set("window", options.window);
  op.set("scale", options.scale);
  op.set("soft_cap", options.soft_cap);
  op.set("dropout", options.dropout);
}

// Heads [part heads, (part + 1) heads) of x [N, T, 3 heads, D].
Tensor part_of(const Tensor& x, int64_t part) {
  const int64_t heads = x.size(2) / 3;
  return x.slice(2, part * heads, (part + 1) * heads);
}

Tensor gradient_like(const Tensor& x, bool wanted) {
  return wanted ? Tensor::empty(x.shape(), x.dtype(), x.device()) : Tensor();
}

// The gradient of a bias is added in f32, and then has the dtype of the bias.
Tensor bias_gradient_like(const Tensor& bias, bool wanted) {
  if (!wanted) return {};
  const DType dtype = bias.dtype() == DType::bf16 ? DType::f32 : bias.dtype();
  return Tensor::empty(bias.shape(), dtype, bias.device());
}
Tensor of_bias(const Tensor& dbias, const Tensor& bias) {
  return dbias.defined() ? ops::cast(dbias, bias.dtype()) : dbias;
}

// Returns y and lse of the forward pass if q, k and v have their exact values. Otherwise both must
// be computed again from the q, k and v that the backward pass has. If the codecs know their
// variance, y and lse stay undefined: the backward pass then computes them on its way, with other
// bits. A codec that knows no variance may be one that loses nothing. Such a codec must not change
// bits, so y and lse are computed here.
ops::AttentionOutput output_of(const Backward& b, const ops::AttentionInputs& in,
                               const AttentionOptions& options, std::initializer_list<int> inputs,
                               int y, int lse) {
  bool same = true, known = true;
  for (const int slot : inputs) {
    same = same && b.slot(slot).quality() == Rebuilt::exact;
    known = known && b.slot(slot).knows_variance();
  }
  if (same) return {b.saved(y), b.saved(lse)};
  if (known) return {};
  CategoryScope scope(Category::workspace);
  return ops::attention(in, options);
}

}  // namespace

Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const Tensor& mask, const Variable& bias,
                                      const AttentionOptions& options) {
  const ops::AttentionOutput out =
      ops::attention({q.value(), k.value(), v.value(), mask, value_of(bias)}, options);
  return record(
      {"attention", [&](TracedOp& t) { describe(t, mask, options); }}, {q, k, v, bias}, out.y,
      {by_head(save(q)), by_head(save(k)), by_head(save(v)), by_head(save_output(out.y)),
       save_whole(out.lse), save_exact(mask), save(bias)},
      [options](const Backward& b) {
        const ops::AttentionInputs in{b.saved(kQ), b.saved(kK), b.saved(kV), b.saved(kMask),
                                      b.saved(kBias)};
        const ops::AttentionGradients g{
            gradient_like(in.q, b.needs(0)), gradient_like(in.k, b.needs(1)),
            gradient_like(in.v, b.needs(2)), bias_gradient_like(in.bias, b.needs(3))};
        ops::attention_backward(
            b.dy(), in, output_of(b, in, options, {kQ, kK, kV, kBias}, kY, kLse), options, g);
        return Grads{g.dq, g.dk, g.dv, of_bias(g.dbias, in.bias)};
      });
}

Variable qkv_attention(const Variable& qkv, const Tensor& mask, const Variable& bias,
                       const AttentionOptions& options) {
  FRUGAL_CHECK(qkv.value().dim() == 4 && qkv.size(2) % 3 == 0,
               "[attention] expected qkv [N, T, 3 heads, D], got {}", qkv.shape());
  const Tensor& x = qkv.value();
  const ops::AttentionOutput out =
      ops::attention({part_of(x, 0), part_of(x, 1), part_of(x, 2), mask, value_of(bias)}, options);
  return record(
      {"qkv_attention", [&](TracedOp& t) { describe(t, mask, options); }}, {qkv, bias}, out.y,
      {by_head(save(qkv)), by_head(save_output(out.y)), save_whole(out.lse), save_exact(mask),
       save(bias)},
      [options](const Backward& b) {
        const Tensor all = b.saved(kQkv);
        const ops::AttentionInputs in{part_of(all, 0), part_of(all, 1), part_of(all, 2),
                                      b.saved(kPackedMask), b.saved(kPackedBias)};
        const Tensor dqkv = gradient_like(all, b.needs(0));
        ops::AttentionGradients g;
        if (b.needs(0)) g = {part_of(dqkv, 0), part_of(dqkv, 1), part_of(dqkv, 2), {}};
        g.dbias = bias_gradient_like(in.bias, b.needs(1));
        ops::attention_backward(
            b.dy(), in, output_of(b, in, options, {kQkv, kPackedBias}, kPackedY, kPackedLse),
            options, g);
        return Grads{dqkv, of_bias(g.dbias, in.bias)};
      });
}

}  // namespace frugal
