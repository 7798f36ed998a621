#include "ops/dense/dropout.h"

#include "autograd/functions.h"
#include "autograd/record.h"

namespace frugal {
namespace {

// Writes over x if nobody else holds it.
Tensor drop(Tensor x, double p, RngKey key) {
  if (!is_sole_owner(x)) return ops::dropout(x, p, key);
  ops::dropout_inplace(x, p, key);
  return x;
}

}  // namespace

Variable dropout(const Variable& x, double p, RngKey key) {
  return record(
      {"dropout", [&](TracedOp& t) { t.set("p", p); }}, {x}, ops::dropout(x.value(), p, key),
      {for_replay(x)}, [p, key](const Backward& b) { return Grads{drop(b.take_dy(), p, key)}; },
      linear_replay([p, key](const Slots& s) { return drop(s.unpack(0), p, key); }));
}

}  // namespace frugal
