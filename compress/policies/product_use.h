// What a product multiplies a saved tensor by in the backward pass. Internal.
#pragma once
#include "autograd/saved_tensor.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul.h"

namespace frugal::compress {

// dy, or dy times the weight that Use::Product names. REQUIRES: `use` is a product of the op whose
// slots these are.
inline Tensor factor_of(const Use& use, const Slots& slots, const Tensor& dy) {
  if (use.weight < 0 || !slots[use.weight].defined()) return dy;
  return ops::linear_backward_input(ops::contiguous(dy), slots.unpack(use.weight));
}

}  // namespace frugal::compress
