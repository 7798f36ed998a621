// Rotary position embedding: pairs of channels are turned by an angle that grows with the position.
// f32 and f64.
// Ref: Su et al. 2021, equation 34, with channel i paired with i + D/2.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// x [N, T, heads, D] -> the same shape. The channels (i, i + D/2) = (x1, x2) become (x1 cos a - x2
// sin a, x2 cos a + x1 sin a) with a = position base^(-2i/D). positions [T] i64; if undefined, they
// are 0..T-1. `inverse` turns back, which is the gradient.
// Errors: an odd D; positions of another shape or dtype; base not above 0.
Tensor rotary(const Tensor& x, const Tensor& positions, double base, bool inverse = false);
// REQUIRES: all tensors are contiguous.
void rotary_kernel(Cpu, const Tensor& x, const Tensor& positions, double base, bool inverse,
                   const Tensor& y);
void rotary_kernel(Cuda, const Tensor& x, const Tensor& positions, double base, bool inverse,
                   const Tensor& y);

}  // namespace frugal::ops
