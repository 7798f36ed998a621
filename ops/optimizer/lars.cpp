#include "ops/optimizer/lars.h"

#include <cmath>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/sgd.h"
#include "ops/optimizer/trained.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

double norm_of(const Tensor& x) {
  double squares = 0;
  sum_of_squares_kernel(Cpu{}, x, squares);
  return std::sqrt(squares);
}

// What the gradient and the decay are multiplied by.
double rate_of(const LarsUpdate& u) {
  if (!u.step.adapt) return u.step.lr;
  const double of_parameter = norm_of(u.parameter), of_gradient = norm_of(u.gradient);
  const double ratio =
      u.step.trust * of_parameter / (of_gradient + u.step.weight_decay * of_parameter);
  const bool applies = of_gradient > 0 && ratio > 0 && std::isfinite(ratio);
  return applies ? u.step.lr * ratio : u.step.lr;
}

void lars_update(const LarsUpdate& u) {
  const double scaled = rate_of(u);
  with_real(u.parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* __restrict p = u.parameter.mut<T>();
    T* __restrict v = u.velocity.mut<T>();
    const T* __restrict g = u.gradient.data<T>();
    const T rate = static_cast<T>(scaled), decay = static_cast<T>(u.step.weight_decay),
            momentum = static_cast<T>(u.step.momentum);
    parallel_for(0, u.parameter.numel(), kArithmeticGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        v[i] = momentum * v[i] + rate * (g[i] + decay * p[i]);
        p[i] -= v[i];
      }
    });
  });
}

}  // namespace

void lars_steps_kernel(Cpu, const std::vector<LarsUpdate>& updates) {
  for (const LarsUpdate& u : updates) lars_update(u);
}

void lars_steps(const std::vector<LarsUpdate>& updates) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  std::vector<LarsUpdate> dense = updates;
  for (LarsUpdate& u : dense) {
    check_trained("lars", u.parameter, device);
    check_shape("lars", "the gradient", u.gradient, u.parameter.shape());
    check_shape("lars", "the velocity", u.velocity, u.parameter.shape());
    check_same("lars", u.parameter, {&u.gradient, &u.velocity});
    u.gradient = contiguous(u.gradient);
  }
  dispatch(device, [&](auto backend) { lars_steps_kernel(backend, dense); });
  for (const LarsUpdate& u : dense) {
    u.parameter.bump_version();
    u.velocity.bump_version();
  }
}

}  // namespace frugal::ops
