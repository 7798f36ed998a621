// The fused update of stochastic gradient descent, in one pass over parameter, gradient and
// momentum; and a sum of squares.
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

// Works in place, in the order of PyTorch: g += weight_decay * p; v = momentum * v + g; p -= lr *
// (nesterov ? g + momentum * v : v). parameter, gradient, velocity: equal shapes, f32 or f64; all
// except the gradient are contiguous. On CUDA only f32, and all updates take one launch. The
// versions of parameters and velocities rise.  Errors: shapes, dtypes or devices that differ; then
// nothing is changed.
void sgd_steps(const std::vector<SgdUpdate>& updates);
void sgd_steps_kernel(Cpu, const std::vector<SgdUpdate>& updates);
void sgd_steps_kernel(Cuda, const std::vector<SgdUpdate>& updates);

// The sum of squares in f64, added in fixed chunks, so it is the same for every number of threads.
// 0 on `meta`.
double sum_of_squares(const Tensor& x);
void sum_of_squares_kernel(Cpu, const Tensor& x, double& sum);
void sum_of_squares_kernel(Cuda, const Tensor& x, double& sum);

}  // namespace frugal::ops
