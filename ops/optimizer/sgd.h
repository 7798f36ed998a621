// The fused update of stochastic gradient descent, one pass over parameter, gradient and momentum,
// and a sum of squares.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

struct SgdStep {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

struct SgdUpdate {
  Tensor parameter, gradient;
  Tensor velocity;  // undefined when momentum is 0
  SgdStep step;
};

// In place, PyTorch's order: g += weight_decay * p; v = momentum * v + g; p -= lr * (nesterov ? g +
// momentum * v : v). parameter, gradient, velocity: equal shapes, f32 or f64, all but the gradient
// contiguous; f32 alone on CUDA, where all updates are one launch. Bumps the versions of parameters
// and velocities.  Errors: shapes, dtypes or devices differ; nothing is changed then.
void sgd_steps(const std::vector<SgdUpdate>& updates);
void sgd_steps_kernel(Cpu, const std::vector<SgdUpdate>& updates);
void sgd_steps_kernel(Cuda, const std::vector<SgdUpdate>& updates);

// The sum of squares, in f64, in fixed chunks: the same for any thread count; 0 on meta.
double sum_of_squares(const Tensor& x);
void sum_of_squares_kernel(Cpu, const Tensor& x, double& sum);
void sum_of_squares_kernel(Cuda, const Tensor& x, double& sum);

}  // namespace frugal::ops
