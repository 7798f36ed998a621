// Normalized outputs y with dx = y (dy - sum of dy y over what is normalized together). The sum has
// each element's own product dy y^2. There the noise of one rounding meets itself, and y is too
// large on average by its variance, which no codec knows by element. So the square is kept too,
// with noise of its own. All other products are of different elements, whose noise is independent.
#pragma once
#include "autograd/record.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"

namespace frugal {

inline Save save_square(const Variable& x, const Tensor& y) {
  if (!recording({x}) || !saves_may_be_lossy()) return {};
  return save_output(ops::mul(y, y));
}

// dx, made from y = b.saved(0), plus dy (y^2 - the square in `slot`).
inline Tensor corrected_by_square(const Backward& b, const Tensor& y, int slot, Tensor dx) {
  if (!b.keeps(slot) || b.slot(0).quality() == Replay::exact) return dx;
  CategoryScope scope(Category::workspace);
  const Tensor excess = ops::sub(ops::mul(y, y), b.saved(slot));
  ops::accumulate(dx, ops::mul(b.dy(), excess));
  return dx;
}

}  // namespace frugal
