#include "ops/dense/elementwise.h"

#include "autograd/functions.h"
#include "autograd/functions/factor.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/reduce.h"

namespace frugal {
namespace {

using ops::Unary;

// The gradient of an input that may have been broadcast from `shape`.
Tensor to_shape(const Backward& b, int input, Tensor gradient, const Shape& shape) {
  return b.needs(input) ? ops::sum_to(gradient, shape) : Tensor();
}

// Whether a policy may change what an op of these inputs saves.
bool lossy(const Variables& inputs) { return recording(inputs) && saves_may_be_lossy(); }

// Records an op whose gradient is computed from its output. Only exp's gradient is linear in the
// output.
Variable from_output(Unary op, const Variable& x) {
  Tensor y = ops::unary(op, x.value());
  if (op != Unary::exp && lossy({x}))
    return record_factor(ops::name_of(op), x, y, unary_factor(op, y));
  return record(ops::name_of(op), {x}, y, {save_output(y)}, [op](const Backward& b) {
    return Grads{ops::unary_backward(op, b.dy(), b.saved(0))};
  });
}

// Records a smooth op whose gradient is computed from its input. Its output is cheap to rebuild
// from the input. Noise in the input would bias both, so its variance is used to correct them.
// Where nobody knows the variance, the factor f'(x) is saved instead.
Variable from_input(Unary op, const Variable& x) {
  const auto describe = [&](TracedOp& t) { t.set("tanh", op == Unary::gelu_tanh); };
  Save input = save(x);
  input.curved = true;
  PassedSave out = save_and_run(ops::name_of(op), {x}, std::move(input), {PackedPass::Map{op}},
                                [&](PackedPass& pass) { pass.out = ops::unary(op, x.value()); });
  if (!keeps_known_noise(ops::name_of(op), {x}, out.x))
    return record_factor({ops::name_of(op), describe}, x, out.y, unary_factor(op, x.value()));
  return record(
      {ops::name_of(op), describe}, {x}, out.y, {out.x},
      [op](const Backward& b) {
        const Tensor dx = run_over(b.slot(0), {PackedPass::Map{op, b.dy()}});
        if (dx.defined()) return Grads{dx};
        const Tensor variance = variance_of(b.slot(0));
        return Grads{variance.defined()
                         ? ops::unary_backward_estimate(op, b.dy(), b.saved(0), variance)
                         : ops::unary_backward(op, b.dy(), b.saved(0))};
      },
      smooth_recipe([op](const Slots& s) {
        const Tensor y = run_over(s[0], {PackedPass::Map{op}});
        if (y.defined()) return y;
        const Tensor variance = variance_of(s[0]);
        return variance.defined() ? ops::unary_estimate(op, s.unpack(0), variance)
                                  : ops::unary(op, s.unpack(0));
      }));
}

// x where it is positive, else slope * x. The backward pass and the rebuild use the exact sign.
Variable rectifier(const char* op, const Variable& x, double slope) {
  const ops::Rectified out = ops::rectify(x.value(), slope, recording({x}));
  return record(
      {op, [&](TracedOp& t) { t.set("slope", slope); }}, {x}, out.y,
      {save_sign(out.mask), for_recipe(x)},
      [slope](const Backward& b) { return Grads{ops::select_by_mask(b.dy(), b.saved(0), slope)}; },
      linear_recipe(
          [slope](const Slots& s) { return ops::select_by_mask(s.unpack(1), s.unpack(0), slope); },
          true));
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  return record(
      "add", {a, b}, ops::add(a.value(), b.value()), {for_recipe(a), for_recipe(b)},
      [as = a.shape(), bs = b.shape()](const Backward& back) {
        return Grads{to_shape(back, 0, back.dy(), as), to_shape(back, 1, back.dy(), bs)};
      },
      linear_recipe([](const Slots& s) { return ops::add(s.unpack(0), s.unpack(1)); },
                    a.shape() == b.shape()));
}

Variable sub(const Variable& a, const Variable& b) {
  return record(
      "sub", {a, b}, ops::sub(a.value(), b.value()), {for_recipe(a), for_recipe(b)},
      [as = a.shape(), bs = b.shape()](const Backward& back) {
        Grads grads{to_shape(back, 0, back.dy(), as), {}};
        if (back.needs(1)) grads[1] = ops::unary(Unary::neg, ops::sum_to(back.dy(), bs));
        return grads;
      },
      linear_recipe([](const Slots& s) { return ops::sub(s.unpack(0), s.unpack(1)); },
                    a.shape() == b.shape()));
}

Variable mul(const Variable& a, const Variable& b) {
  // Each factor is saved only if the other one needs a gradient.
  return record("mul", {a, b}, ops::mul(a.value(), b.value()),
                {save_if(b.requires_grad(), a), save_if(a.requires_grad(), b)},
                [as = a.shape(), bs = b.shape()](const Backward& back) {
                  Grads grads(2);
                  if (back.needs(0)) grads[0] = ops::sum_to(ops::mul(back.dy(), back.saved(1)), as);
                  if (back.needs(1)) grads[1] = ops::sum_to(ops::mul(back.dy(), back.saved(0)), bs);
                  return grads;
                });
}

// y = a / b, da = dy / b, db = -dy a / b^2.  Saves: a and b. The gradients are not linear in b, so
// where a policy may make it lossy, it saves 1 / b for da and a / b^2 for db.
Variable div(const Variable& a, const Variable& b) {
  if (lossy({a, b}) && !b.is_held()) {
    const Tensor y = ops::div(a.value(), b.value());
    Save of_a, of_b;
    if (a.requires_grad())
      of_a = save_output(ops::div(Tensor::full({}, 1, b.dtype(), b.device()), b.value()));
    if (b.requires_grad()) of_b = save_output(ops::div(y, b.value()));
    return record(
        "div", {a, b}, y, {of_a, of_b}, [as = a.shape(), bs = b.shape()](const Backward& back) {
          Grads grads(2);
          if (back.needs(0)) grads[0] = ops::sum_to(ops::mul(back.dy(), back.saved(0)), as);
          if (back.needs(1))
            grads[1] = ops::unary(Unary::neg, ops::sum_to(ops::mul(back.dy(), back.saved(1)), bs));
          return grads;
        });
  }
  return record("div", {a, b}, ops::div(a.value(), b.value()),
                {save_if(b.requires_grad(), a), save(b)},
                [as = a.shape(), bs = b.shape()](const Backward& back) {
                  Grads grads(2);
                  const Tensor divisor = back.saved(1), quotient = ops::div(back.dy(), divisor);
                  if (back.needs(0)) grads[0] = ops::sum_to(quotient, as);
                  if (back.needs(1)) {
                    // -dy a / b^2
                    const Tensor g = ops::div(ops::mul(quotient, back.saved(0)), divisor);
                    grads[1] = ops::unary(Unary::neg, ops::sum_to(g, bs));
                  }
                  return grads;
                });
}

Variable scale(const Variable& x, double factor) {
  return record(
      {"scale", [&](TracedOp& t) { t.set("factor", factor); }}, {x},
      ops::affine(x.value(), factor, 0), {for_recipe(x)},
      [factor](const Backward& b) { return Grads{ops::affine(b.dy(), factor, 0)}; },
      linear_recipe([factor](const Slots& s) { return ops::affine(s.unpack(0), factor, 0); },
                    true));
}

Variable add_scalar(const Variable& x, double term) {
  return record(
      {"add_scalar", [&](TracedOp& t) { t.set("term", term); }}, {x},
      ops::affine(x.value(), 1, term), {for_recipe(x)},
      [](const Backward& b) { return Grads{b.dy()}; },
      linear_recipe([term](const Slots& s) { return ops::affine(s.unpack(0), 1, term); }, true));
}

Variable neg(const Variable& x) {
  return record(
      "neg", {x}, ops::unary(Unary::neg, x.value()), {for_recipe(x)},
      [](const Backward& b) { return Grads{ops::unary(Unary::neg, b.dy())}; },
      linear_recipe([](const Slots& s) { return ops::unary(Unary::neg, s.unpack(0)); }, true));
}

Variable exp(const Variable& x) { return from_output(Unary::exp, x); }
Variable sqrt(const Variable& x) { return from_output(Unary::sqrt, x); }
Variable sigmoid(const Variable& x) { return from_output(Unary::sigmoid, x); }
Variable tanh(const Variable& x) { return from_output(Unary::tanh, x); }
Variable silu(const Variable& x) { return from_input(Unary::silu, x); }
Variable gelu(const Variable& x, Gelu kind) { return from_input(ops::unary_of(kind), x); }

Variable log(const Variable& x) {
  if (lossy({x}))
    return record_factor("log", x, ops::unary(Unary::log, x.value()),
                         unary_factor(Unary::log, x.value()));
  return record("log", {x}, ops::unary(Unary::log, x.value()), {save(x)}, [](const Backward& b) {
    return Grads{ops::unary_backward(Unary::log, b.dy(), b.saved(0))};
  });
}

Variable relu(const Variable& x) { return rectifier("relu", x, 0); }
Variable leaky_relu(const Variable& x, double slope) { return rectifier("leaky_relu", x, slope); }

Variable clamp(const Variable& x, double lo, double hi) {
  const ops::Rectified out = ops::clamp(x.value(), lo, hi, recording({x}));
  const auto describe = [&](TracedOp& t) {
    t.set("lo", lo);
    t.set("hi", hi);
  };
  return record({"clamp", describe}, {x}, out.y, {save_mask(out.mask)}, [](const Backward& b) {
    return Grads{ops::select_by_mask(b.dy(), b.saved(0), 0)};
  });
}

}  // namespace frugal
