// Ops whose gradient is dy times a factor that they can compute in the forward pass.
#pragma once
#include "autograd/record.h"
#include "ops/dense/elementwise.h"

namespace frugal {

// f'(x) from what ops::unary_backward takes: x or f(x), by op.
inline Tensor unary_factor(ops::Unary op, const Tensor& saved) {
  CategoryScope scope(Category::workspace);
  const Tensor ones = Tensor::full(saved.shape(), 1, saved.dtype(), saved.device());
  CategoryScope kept(Category::activation);
  return ops::unary_backward(op, ones, saved);
}

// Records y with dx = dy factor. The gradient is linear in the factor, and only the factor is
// saved. For ops whose gradient is not linear in x or y, where a policy may make these lossy.
inline Variable record_factor(const OpName& op, const Variable& x, Tensor y, const Tensor& factor) {
  return record(op, {x}, std::move(y), {save_output(factor)},
                [](const Backward& b) { return Grads{ops::mul(b.dy(), b.saved(0))}; });
}

}  // namespace frugal
