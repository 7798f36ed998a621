#include "ops/dense/dropout.h"

#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/node.h"
#include "autograd/saved_entry.h"
#include "autograd/segmentation_functions.h"
#include "autograd/trace.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"

namespace frugal {
namespace {

// Writes over x if nobody else holds it. `first`: the place of x's first element in the tensor of
// which x is a part.
Tensor drop(Tensor x, double p, RngKey key, int64_t first = 0) {
  if (!is_sole_owner(x)) {
    if (first == 0) return ops::dropout(x, p, key);
    x = ops::clone(x);
  }
  ops::dropout_inplace(x, p, key, first);
  return x;
}

// The rows of y that are asked for.
Tensor dropped_again(const Slots& s, double p, RngKey key) {
  const Rows rows = rebuilt_rows();
  Tensor x = s.unpack(0);
  const int64_t first = rows.of == 0 || x.numel() == 0 ? 0 : rows.begin * (x.numel() / x.size(0));
  return drop(std::move(x), p, key, first);
}

Variable record_dropout(const Variable& x, const Save& source, Tensor y, double p, RngKey key) {
  return record(
      {"dropout", [&](TracedOp& t) { t.set("p", p); }}, {x}, std::move(y), {source},
      [p, key](const Backward& b) { return Grads{drop(b.take_dy(), p, key)}; },
      linear_recipe([p, key](const Slots& s) { return dropped_again(s, p, key); }, true));
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
  return record_dropout(x, for_recipe(x), ops::dropout(x.value(), p, key), p, key);
}

Variable dropout_over(Variable x, double p, RngKey key) {
  if (!x.is_sole_handle() || active_trace() != nullptr) return dropout(x, p, key);
  Save source = for_recipe(x);
  // It is looked for before the values change.
  if (recording({x})) source.kept = keep("dropout", 0, source);
  source.value = {};
  if (!is_sole_owner(x.value()))
    return record_dropout(x, source, ops::dropout(x.value(), p, key), p, key);
  ops::dropout_inplace(x.value(), p, key);
  return record_dropout(x, source, x.value(), p, key);
}

Variable dropout2d(const Variable& x, double p, RngKey key) {
  return record(
      {"dropout2d", [&](TracedOp& t) { t.set("p", p); }}, {x}, drop_channels(x.value(), p, key),
      {for_recipe(x)}, [p, key](const Backward& b) { return Grads{drop_channels(b.dy(), p, key)}; },
      linear_recipe([p, key](const Slots& s) { return drop_channels(s.unpack(0), p, key); }));
}

}  // namespace frugal
