// The backward pass of losses that keep their gradient. Internal to the functions.
#pragma once
#include "autograd/record.h"
#include "ops/dense/inplace.h"
#include "ops/loss/binary_cross_entropy.h"

namespace frugal {

// dy times what slot 0 keeps: d(loss)/d(x). The product is written over the gradient where nobody
// else holds it, as when it was packed.
inline Tensor scaled_gradient(const Backward& b) {
  const bool raw = b.slot(0).is_raw(), sole = b.slot(0).is_sole_owner();
  const Tensor gradient = b.saved(0);
  if (raw ? !sole : !is_sole_owner(gradient))
    return ops::binary_cross_entropy_backward(b.dy(), gradient);  // the same product
  ops::scale_inplace(gradient, b.dy());
  return gradient;
}

}  // namespace frugal
