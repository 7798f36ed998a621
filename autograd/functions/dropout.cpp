#include "ops/dense/dropout.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/segmentation_functions.h"
#include "autograd/trace.h"
#include "ops/dense/elementwise.h"

namespace frugal {
namespace {

// Writes over x if nobody else holds it.
Tensor drop(Tensor x, double p, RngKey key) {
  if (!is_sole_owner(x)) return ops::dropout(x, p, key);
  ops::dropout_inplace(x, p, key);
  return x;
}

// The factors of the channels are made again from the key wherever they are needed.
Tensor drop_channels(const Tensor& x, double p, RngKey key) {
  FRUGAL_CHECK(x.dim() >= 2, "[dropout2d] expected x [N, ..., C], got {}", describe(x));
  FRUGAL_CHECK(p >= 0 && p <= 1, "[dropout2d] expected a probability in [0, 1], got {}", p);
  Shape each = x.shape();
  for (int axis = 1; axis + 1 < each.dim(); ++axis) each[axis] = 1;
  CategoryScope scope(Category::workspace);
  const Tensor factors = ops::dropout(Tensor::full(each, 1, x.dtype(), x.device()), p, key);
  CategoryScope result(Category::activation);
  return ops::mul(x, factors);
}

}  // namespace

Variable dropout(const Variable& x, double p, RngKey key) {
  return record(
      {"dropout", [&](TracedOp& t) { t.set("p", p); }}, {x}, ops::dropout(x.value(), p, key),
      {for_recipe(x)}, [p, key](const Backward& b) { return Grads{drop(b.take_dy(), p, key)}; },
      linear_recipe([p, key](const Slots& s) { return drop(s.unpack(0), p, key); }));
}

Variable dropout2d(const Variable& x, double p, RngKey key) {
  return record(
      {"dropout2d", [&](TracedOp& t) { t.set("p", p); }}, {x}, drop_channels(x.value(), p, key),
      {for_recipe(x)}, [p, key](const Backward& b) { return Grads{drop_channels(b.dy(), p, key)}; },
      linear_recipe([p, key](const Slots& s) { return drop_channels(s.unpack(0), p, key); }));
}

}  // namespace frugal
