// Internal to autograd: the graph's side of a convolution.
#pragma once
#include "autograd/functions.h"

namespace frugal {

// conv2d() whose output is `y`. Where y has no values, the caller gives the consumer of the output
// what it needs.
Variable record_conv2d(const Conv2dCall& call, Tensor y);

// A tensor of that shape that takes no memory and has no values.
Tensor without_values(const Shape& shape, DType dtype, Device device);

}  // namespace frugal
