#include "ops/dense/elu.h"

#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/dropout.h"
#include "ops/dense/inplace.h"

namespace frugal {

// The gradient is computed from the output through the exact sign; it is linear in y. An op that
// also saves y shares the entry.
Variable elu(const Variable& x) {
  const ops::EluOutput out = ops::elu(x.value(), recording({x}));
  return record(
      "elu", {x}, out.y, {save_output(out.y).with_sign(out.mask, 1), save_sign(out.mask)},
      [](const Backward& b) { return Grads{ops::elu_backward(b.dy(), b.saved(0), b.saved(1))}; },
      linear_recipe([](const Slots& s) { return s.unpack(0); }, true));
}

Variable relu_dropout(const Variable& x, double p, RngKey key) {
  FRUGAL_CHECK(p >= 0 && p <= 1, "[relu_dropout] expected a probability in [0, 1], got {}", p);
  // Scaling keeps signs, so relu and dropout may be exchanged.
  const ops::Rectified out = ops::rectify(ops::dropout(x.value(), p, key), 0, recording({x}));
  const double scale = p < 1 ? 1 / (1 - p) : 0;
  const auto pass = [scale](const Tensor& v, const Tensor& mask) {
    const Tensor kept = ops::select_by_mask(v, mask, 0);
    if (scale != 1) ops::scale_inplace(kept, scale);
    return kept;
  };
  return record(
      {"relu_dropout", [&](TracedOp& t) { t.set("p", p); }}, {x}, out.y,
      {save_sign(out.mask), for_recipe(x)},
      [pass](const Backward& b) { return Grads{pass(b.dy(), b.saved(0))}; },
      linear_recipe([pass](const Slots& s) { return pass(s.unpack(1), s.unpack(0)); }, true));
}

}  // namespace frugal
