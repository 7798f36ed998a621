// elu with alpha 1: y = x where x > 0 or NaN, else exp(x) - 1. f32, bf16 and f64, which CUDA has
// not. Ref: Clevert et al. 2016, equation 16.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct EluOutput {
  Tensor y, mask;  // the mask (ops/dense/bitmask.h) says where y = x; undefined unless asked for
};
EluOutput elu(const Tensor& x, bool want_mask);
void elu_kernel(Cpu, const Tensor& x, const Tensor& y, const Tensor& mask);
void elu_kernel(Cuda, const Tensor& x, const Tensor& y, const Tensor& mask);

// dy where the mask is set, else dy (y + 1): linear in y.
Tensor elu_backward(const Tensor& dy, const Tensor& y, const Tensor& mask);
void elu_backward_kernel(Cpu, const Tensor& dy, const Tensor& y, const Tensor& mask,
                         const Tensor& dx);
void elu_backward_kernel(Cuda, const Tensor& dy, const Tensor& y, const Tensor& mask,
                         const Tensor& dx);

}  // namespace frugal::ops
