// Dropout with decisions from a counter-based random stream, so the mask is never stored. Ref:
// Srivastava et al. 2014.
#pragma once
#include "core/rng.h"
#include "core/tensor.h"

namespace frugal::ops {

// y_i = x_i / (1 - p) where uniform(key, i) >= p, else 0. It is linear in x, so the same function
// is its backward pass and its rebuild. f32 and f64. Errors: p outside [0, 1].
Tensor dropout(const Tensor& x, double p, RngKey key);
// Writes dropout() of x over x, which is contiguous. The version of x rises. x may be a part of a
// tensor: it holds the elements from `first` on.
void dropout_inplace(const Tensor& x, double p, RngKey key, int64_t first = 0);
// y may be x.
void dropout_kernel(Cpu, const Tensor& x, double p, RngKey key, const Tensor& y, int64_t first);
void dropout_kernel(Cuda, const Tensor& x, double p, RngKey key, const Tensor& y, int64_t first);

}  // namespace frugal::ops
