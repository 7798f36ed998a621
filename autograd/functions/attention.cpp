#include "ops/sequence/attention.h"

#include "autograd/node.h"
#include "autograd/saved_entry.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/copy.h"

namespace frugal {
namespace {

// y = softmax(q k^T scale + mask + bias) v. Saves q, k, v, y and a log-sum-exp for each row. y and
// the sums are not saved where q, k or v are certainly rounded, because they are then computed from
// the rounded tensors in the backward pass. The backward pass computes the probabilities again,
// tile by tile. They are not linear in what is saved, so lossy codes leave a bias. It is small
// because the probabilities are normalized anew.
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

// What is known of the tensors that the scores and the output are made of.
struct Kept {
  bool exact = true;       // they have the bits of the forward pass
  bool tells_loss = true;  // it is known for each of them whether it has these bits

  void add(const SavedTensor& saved) {
    if (!saved.defined()) return;
    exact = exact && saved.quality() == Rebuilt::exact;
    tells_loss = tells_loss && entry_of(saved)->tells_loss();
  }
};

// Returns y and lse of the forward pass if q, k and v have their exact values. Otherwise both must
// be computed again from the q, k and v that the backward pass has. If these are certainly rounded,
// y and lse stay undefined: the backward pass then computes them on its way, with other bits. Codes
// that tell no variance may lose nothing. They must not change bits, so y and lse are computed
// here. So they are where a tensor was kept without loss after all, for another op.
ops::AttentionOutput output_of(const Backward& b, const ops::AttentionInputs& in,
                               const AttentionOptions& options, std::initializer_list<int> inputs,
                               int y, int lse) {
  Kept kept;
  for (const int slot : inputs) kept.add(b.slot(slot));
  if (kept.exact && b.keeps(lse)) return {b.saved(y), b.saved(lse)};
  if (!kept.exact && kept.tells_loss) return {};
  CategoryScope scope(Category::workspace);
  return ops::attention(in, options);
}

// Keeps `inputs` in the first slots, and says what is saved of y and lse behind them: nothing, if
// backward will not read them. A bias that is no parameter is kept later, so nothing is known of
// it.
struct OutputSaves {
  Save y, lse;
};
OutputSaves keep_inputs(const char* op, const Variables& edges, const Variable& bias,
                        const ops::AttentionOutput& out, std::initializer_list<Save*> inputs) {
  OutputSaves saves{by_head(save_output(out.y)), save_whole(out.lse)};
  if (!recording(edges) || !saves_may_be_lossy()) return saves;
  Kept kept;
  int slot = 0;
  for (Save* const each : inputs) {
    each->kept = keep(op, slot++, *each);
    kept.add(each->kept);
  }
  if (kept.exact || !kept.tells_loss || (bias.defined() && !bias.is_held())) return saves;
  number_unsaved(out.y);
  return {};
}

}  // namespace

Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const Tensor& mask, const Variable& bias,
                                      const AttentionOptions& options) {
  const ops::AttentionOutput out =
      ops::attention({q.value(), k.value(), v.value(), mask, value_of(bias)}, options);
  const Variables inputs{q, k, v, bias};
  Save of_q = by_head(save(q)), of_k = by_head(save(k)), of_v = by_head(save(v));
  const OutputSaves of_out = keep_inputs("attention", inputs, bias, out, {&of_q, &of_k, &of_v});
  return record({"attention", [&](TracedOp& t) { describe(t, mask, options); }}, inputs, out.y,
                {of_q, of_k, of_v, of_out.y, of_out.lse, save_exact(mask), save(bias)},
                [options](const Backward& b) {
                  const ops::AttentionInputs in{b.saved(kQ), b.saved(kK), b.saved(kV),
                                                b.saved(kMask), b.saved(kBias)};
                  const ops::AttentionGradients g{
                      gradient_like(in.q, b.needs(0)), gradient_like(in.k, b.needs(1)),
                      gradient_like(in.v, b.needs(2)), bias_gradient_like(in.bias, b.needs(3))};
                  ops::attention_backward(b.dy(), in,
                                          output_of(b, in, options, {kQ, kK, kV, kBias}, kY, kLse),
                                          options, g);
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
  const Variables inputs{qkv, bias};
  Save of_qkv = by_head(save(qkv));
  const OutputSaves of_out = keep_inputs("qkv_attention", inputs, bias, out, {&of_qkv});
  return record(
      {"qkv_attention", [&](TracedOp& t) { describe(t, mask, options); }}, inputs, out.y,
      {of_qkv, of_out.y, of_out.lse, save_exact(mask), save(bias)}, [options](const Backward& b) {
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
