// Operands in the dtype that a library wants. For .cu files.
#pragma once
#include "core/tensor.h"

namespace frugal::ops::cuda {

// x, f32 or bf16, as `dtype` in a workspace tensor of x's strides; x itself where it has it.
// REQUIRES: x is contiguous, or is so after swapping its last two axes.
Tensor in_dtype(const Tensor& x, DType dtype);

// The same into y, both contiguous.
void convert_into(const Tensor& y, const Tensor& x);

}  // namespace frugal::ops::cuda
