#include "ops/dense/softmax.h"

#include "autograd/functions.h"
#include "autograd/functions/saved_square.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/reduce.h"

namespace frugal {

// y = e^x / sum e^x, dx = y (dy - <dy, y>).  Saves: y. If a policy may make y lossy, also y^2
// (saved_square.h).
Variable softmax(const Variable& x, int axis) {
  const auto describe = [&](TracedOp& t) { t.set("axis", axis); };
  const Tensor y = ops::softmax(x.value(), axis);
  return record(
      {"softmax", describe}, {x}, y, {save_output(y), save_square(x, y)},
      [axis](const Backward& b) {
        const Tensor saved = b.saved(0);
        return Grads{corrected_by_square(b, saved, 1, ops::softmax_backward(b.dy(), saved, axis))};
      });
}

// y = x - log sum e^x, dx = dy - e^y sum dy.  Saves: y. If a policy may make it lossy, e^y instead,
// because the gradient is linear in e^y.
Variable log_softmax(const Variable& x, int axis) {
  const auto describe = [&](TracedOp& t) { t.set("axis", axis); };
  const Tensor y = ops::log_softmax(x.value(), axis);
  if (recording({x}) && saves_may_be_lossy())
    return record({"log_softmax", describe}, {x}, y, {save_output(ops::unary(ops::Unary::exp, y))},
                  [axis](const Backward& b) {
                    const Tensor total = ops::sum(b.dy(), {axis}, true);
                    return Grads{ops::sub(b.dy(), ops::mul(b.saved(0), total))};
                  });
  return record({"log_softmax", describe}, {x}, y, {save_output(y)}, [axis](const Backward& b) {
    return Grads{ops::log_softmax_backward(b.dy(), b.saved(0), axis)};
  });
}

}  // namespace frugal
