// Dropout from a counter-based stream: the mask is never stored. Ref: Srivastava et al. 2014.
#pragma once
#include "core/rng.h"
#include "core/tensor.h"

namespace frugal::ops {

// y_i = x_i / (1 - p) where uniform(key, i) >= p, else 0. Its own backward and replay: linear in x.
// f32 and f64. Errors: p outside [0, 1].
Tensor dropout(const Tensor& x, double p, RngKey key);
// The same in place of x, contiguous; bumps its version.
void dropout_inplace(const Tensor& x, double p, RngKey key);
// y may be x.
void dropout_kernel(Cpu, const Tensor& x, double p, RngKey key, const Tensor& y);
void dropout_kernel(Cuda, const Tensor& x, double p, RngKey key, const Tensor& y);

}  // namespace frugal::ops
