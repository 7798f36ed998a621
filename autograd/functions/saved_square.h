// For normalized outputs y with dx = y (dy - sum of dy y), where the sum is over the elements that
// are normalized together. The sum contains the element's own product dy y, so dx contains y^2.
// There the noise of one rounding meets itself: y^2 is too large on average by the variance of y,
// which no codec knows for each element. So the square is saved, too, with noise of its own. All
// other products are of different elements, whose noise is independent.
#pragma once
#include "autograd/record.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"

namespace frugal {

inline Save save_square(const Variable& x, const Tensor& y) {
  if (!recording({x}) || !saves_may_be_lossy()) return {};
  return save_output(ops::mul(y, y));
}

// dx, which was made from y = b.saved(0), plus dy (y^2 - the square in `slot`).
inline Tensor corrected_by_square(const Backward& b, const Tensor& y, int slot, Tensor dx) {
  if (!b.keeps(slot) || b.slot(0).quality() == Rebuilt::exact) return dx;
  CategoryScope scope(Category::workspace);
  const Tensor excess = ops::sub(ops::mul(y, y), b.saved(slot));
  ops::accumulate(dx, ops::mul(b.dy(), excess));
  return dx;
}

}  // namespace frugal
