// Mean squared error.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct MseResult {
  Tensor loss;        // [] like x, f32 for bf16: mean of (x - target)^2
  Tensor difference;  // x - target, what backward needs
};

// x and target of one shape, f32 or f64. Errors: shapes differ; the mean of nothing.
MseResult mse(const Tensor& x, const Tensor& target);
void mse_kernel(Cpu, const Tensor& x, const Tensor& target, const MseResult& result);
void mse_kernel(Cuda, const Tensor& x, const Tensor& target, const MseResult& result);

// dy [], difference -> d(loss)/dx = 2 dy difference / n; the target's gradient is its negative.
Tensor mse_backward(const Tensor& dy, const Tensor& difference);
void mse_backward_kernel(Cpu, const Tensor& dy, const Tensor& difference, const Tensor& dx);
void mse_backward_kernel(Cuda, const Tensor& dy, const Tensor& difference, const Tensor& dx);

}  // namespace frugal::ops
