#include "ops/linear_activation.h"

#include "autograd/record.h"
#include "autograd/transformer_functions.h"
#include "ops/bitmask.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"

namespace frugal {
namespace {

Tensor value_of(const Variable& x) { return x.defined() ? x.value() : Tensor(); }

// How errors of x reach the weight's gradient: see linear().
Use use_of(const Variable& weight) {
  return {Use::product, 1, 1, static_cast<double>(weight.shape().back())};
}

// dx = dh weight, dweight = dh^T x, dbias = sum(dh), from slots x and weight.
Grads linear_gradients(const Backward& b, const Tensor& dh) {
  Grads grads(3);
  if (b.needs(1)) grads[1] = ops::linear_backward_weight(dh, b.saved(0));
  if (b.needs(2)) grads[2] = ops::sum_to(dh, {dh.shape().back()});
  if (b.needs(0)) grads[0] = ops::linear_backward_input(dh, b.saved(1));
  return grads;
}

}  // namespace

// h = linear(x), y = gelu(h), dh = dy gelu'(h). Two nodes, so that y's recipe has h as its only
// source: noise in x, whose variance nobody knows, does not reach it. Where h is packed its known
// variance is taken away, in replay and in backward.
Variable linear_gelu(const Variable& x, const Variable& weight, const Variable& bias, Gelu kind) {
  const ops::LinearGelu out = ops::linear_gelu(x.value(), weight.value(), value_of(bias), kind);
  const Variable h =
      record("linear", {x, weight, bias}, out.h, {save(x).with_use(use_of(weight)), save(weight)},
             [](const Backward& b) { return linear_gradients(b, b.dy()); });
  const auto op = kind == Gelu::exact ? ops::Unary::gelu_exact : ops::Unary::gelu_tanh;
  return record(
      "linear_gelu", {h}, out.y, {save(h)},
      [op](const Backward& b) {
        const Tensor variance = b.variance(0);
        return Grads{variance.defined()
                         ? ops::unary_backward_estimate(op, b.dy(), b.saved(0), variance)
                         : ops::unary_backward(op, b.dy(), b.saved(0))};
      },
      smooth_replay([op](const Slots& s) {
        const Tensor variance = s.variance(0);
        return variance.defined() ? ops::unary_estimate(op, s.unpack(0), variance)
                                  : ops::unary(op, s.unpack(0));
      }));
}

// y = max(linear(x), 0), dh = dy where y was kept. Saves the sign, which costs nothing where the
// codes of y, kept by its consumer, carry it. No recipe: the linear output is not kept.
Variable linear_relu(const Variable& x, const Variable& weight, const Variable& bias) {
  const Variables inputs{x, weight, bias};
  const ops::LinearRelu out =
      ops::linear_relu(x.value(), weight.value(), value_of(bias), recording(inputs));
  return record("linear_relu", inputs, out.y,
                {save(x).with_use(use_of(weight)), save(weight), save_sign(out.mask)},
                [](const Backward& b) {
                  return linear_gradients(b, ops::select_by_mask(b.take_dy(), b.saved(2), 0));
                });
}

}  // namespace frugal
