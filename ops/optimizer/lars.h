// The fused update of LARS: one pass for the norms of parameter and gradient, one over parameter,
// gradient and velocity.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

struct LarsStep {
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 0;
  double trust = 0.001;  // eta of the paper
  bool adapt = true;     // false: r is 1
};

struct LarsUpdate {
  Tensor parameter, gradient, velocity;
  LarsStep step;
};

// Works in place, in the order of the paper:
//   v = momentum v + lr r (g + decay p);  p -= v
//   r = trust |p| / (|g| + decay |p|) if `adapt` is set and both norms are above 0 and finite
// parameter, gradient, velocity: equal shapes and dtypes, f32 or f64; all except the gradient are
// contiguous. On CUDA only f32, and all updates take three launches. Norms are added in f64 over
// chunks of fixed size. The versions of parameters and velocities rise. Allocates no tensor of the
// parameter's size.
// Errors: shapes, dtypes or devices that differ; then nothing is changed.
// Ref: You, Gitman, Ginsburg 2017, algorithm 1.
void lars_steps(const std::vector<LarsUpdate>& updates);
void lars_steps_kernel(Cpu, const std::vector<LarsUpdate>& updates);
void lars_steps_kernel(Cuda, const std::vector<LarsUpdate>& updates);

}  // namespace frugal::ops
