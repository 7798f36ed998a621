#include "ops/dense/linear_activation.h"

#include "autograd/functions/factor.h"
#include "autograd/functions/slices.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

Tensor value_of(const Variable& x) { return x.defined() ? x.value() : Tensor(); }

// How errors of x reach the gradient of the weight, as in linear(). mask: the slot of relu's mask.
Use use_of(const Variable& weight, int mask = -1) {
  return Use::product(
      {.input = 1, .fan = static_cast<double>(weight.shape().back()), .mask = mask});
}

// dx = dh weight, dweight = dh^T x, dbias = sum(dh), from slots x and weight.
Grads linear_gradients(const Backward& b, const Tensor& dh) {
  Grads grads(3);
  if (b.needs(1)) grads[1] = ops::linear_backward_weight(dh, b.saved(0));
  if (b.needs(2)) grads[2] = ops::linear_backward_bias(dh);
  if (b.needs(0)) grads[0] = ops::linear_backward_input(dh, b.saved(1));
  return grads;
}

// y = gelu(h) from the slots, written over the variance.
Tensor rebuild_gelu(const Slots& s, Gelu kind) {
  const SavedTensor& h = s[0];
  const Tensor made = run_over(h, {PackedPass::Map{ops::unary_of(kind)}});
  if (made.defined()) return made;
  const Tensor variance = variance_of(h);
  if (!variance.defined()) {
    const Tensor x = h.unpack(), y = over(x);
    ops::gelu_into(kind, ops::contiguous(x), {}, y);
    return y;
  }
  const Tensor y = over(variance);
  for_slices({&h}, variance, [&](const Rows& rows) {
    ops::gelu_into(kind, h.unpack_rows(rows), rows_of(variance, rows), rows_of(y, rows));
  });
  return y;
}

// dh = dy gelu'(h), written over dy if nobody else holds it.
Tensor gelu_gradient(const Backward& b, Gelu kind) {
  const Tensor dy = ops::contiguous(b.take_dy());
  const Tensor dh = over(dy);
  if (b.run({PackedPass::Map{ops::unary_of(kind), dy}, dh}, 0)) return dh;
  const Tensor variance = variance_of(b.slot(0));
  for_slices({&b.slot(0)}, variance, [&](const Rows& rows) {
    ops::gelu_backward_into(kind, rows_of(dy, rows),
                            ops::contiguous(b.saved_rows(0, rows.begin, rows.end, rows.of)),
                            rows_of(variance, rows), rows_of(dh, rows));
  });
  return dh;
}

}  // namespace

// h = linear(x), y = gelu(h), dh = dy gelu'(h). These are two nodes, so that the recipe of y has
// only h as its source: noise in x, whose variance nobody knows, does not reach y. Where h is
// packed, its known variance is taken away in rebuild and in backward.
Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias, Gelu kind) {
  const ops::Unary gelu = ops::unary_of(kind);
  ops::LinearGelu made = ops::linear_gelu(x.value(), weight.value(), value_of(bias), kind,
                                          /*leaves_y=*/x.device().type == DeviceType::cuda);
  const Variable h = record("linear", {x, weight, bias}, std::move(made.h),
                            {save_if(weight.requires_grad(), x).with_use(use_of(weight)),
                             save_if(x.requires_grad(), weight)},
                            [](const Backward& b) { return linear_gradients(b, b.dy()); });
  const auto describe = [&](TracedOp& t) { t.set("tanh", kind == Gelu::tanh); };
  Save input = save(h);
  input.curved = true;
  PassedSave out{made.y, input, {}};
  if (!made.y.defined())
    out = save_and_run("linear_gelu", {h}, std::move(input), {PackedPass::Map{gelu}},
                       [&](PackedPass& pass) { pass.out = ops::unary(gelu, h.value()); });
  if (!keeps_known_noise("linear_gelu", {h}, out.x))
    return record_factor({"linear_gelu", describe}, h, out.y, unary_factor(gelu, h.value()));
  return record(
      {"linear_gelu", describe}, {h}, out.y, {out.x},
      [kind](const Backward& b) { return Grads{gelu_gradient(b, kind)}; },
      smooth_recipe([kind](const Slots& s) { return rebuild_gelu(s, kind); }));
}

// y = max(linear(x), 0), dh = dy where y = linear(x). Saves the sign, which costs nothing if the
// consumer of y packs y and its codes carry the sign. There is no recipe, because the linear output
// is not saved.
Variable linear_relu(const Variable& x, const Variable& weight, const Variable& bias) {
  constexpr int kMask = 2;  // its slot
  const Variables inputs{x, weight, bias};
  const ops::LinearRelu out =
      ops::linear_relu(x.value(), weight.value(), value_of(bias), recording(inputs));
  return record("linear_relu", inputs, out.y,
                {save_if(weight.requires_grad(), x).with_use(use_of(weight, kMask)),
                 save_if(x.requires_grad(), weight), save_sign(out.mask)},
                [](const Backward& b) {
                  return linear_gradients(b, ops::select_by_mask(b.take_dy(), b.saved(kMask), 0));
                });
}

}  // namespace frugal
