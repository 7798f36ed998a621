// The fused update of stochastic gradient descent: one pass over parameter, gradient and momentum.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct SgdStep {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// In place, PyTorch's order: g += weight_decay * p; v = momentum * v + g; p -= lr * (nesterov ? g +
// momentum * v : v). parameter, gradient, velocity: equal shapes, contiguous, f32 or f64; velocity
// undefined when momentum is 0. Bumps the versions of parameter and velocity.  Errors: shapes or
// dtypes differ.
void sgd_step(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
              const SgdStep& step);
void sgd_kernel(Cpu, const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
                const SgdStep& step);
void sgd_kernel(Cuda, const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
                const SgdStep& step);

// The sum of squares, in f64, in fixed chunks: the same for any thread count. cpu; 0 on meta.
double sum_of_squares(const Tensor& x);
void sum_of_squares_kernel(Cpu, const Tensor& x, double& sum);
void sum_of_squares_kernel(Cuda, const Tensor& x, double& sum);

}  // namespace frugal::ops
