// Mean squared error.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct MseResult {
  Tensor loss;        // [] like x, f32 for bf16: mean of (x - target)^2
  Tensor difference;  // x - target, which backward needs
};

// x and target have one shape, f32 or f64. Errors: shapes differ; tensors without elements.
MseResult mse(const Tensor& x, const Tensor& target);
void mse_kernel(Cpu, const Tensor& x, const Tensor& target, const MseResult& result);
void mse_kernel(Cuda, const Tensor& x, const Tensor& target, const MseResult& result);

// dy [], difference -> d(loss)/dx = 2 dy difference / n. The gradient of the target is the negative
// of this.
Tensor mse_backward(const Tensor& dy, const Tensor& difference);
void mse_backward_kernel(Cpu, const Tensor& dy, const Tensor& difference, const Tensor& dx);
void mse_backward_kernel(Cuda, const Tensor& dy, const Tensor& difference, const Tensor& dx);

}  // namespace frugal::ops
