// Converts operands to the dtype that a library needs. For .cu files.
#pragma once
#include "core/tensor.h"

namespace frugal::ops::cuda {

// x, f32 or bf16, as `dtype`: x itself if it has that dtype, else a workspace tensor with the
// strides of x. REQUIRES: x is contiguous, or becomes contiguous when its last two axes are
// swapped.
Tensor in_dtype(const Tensor& x, DType dtype);

// Writes x, f32 or bf16, to y in the dtype of y. REQUIRES: both are contiguous.
void convert_into(const Tensor& y, const Tensor& x);

}  // namespace frugal::ops::cuda
