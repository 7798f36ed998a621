// What the tests of optimizers share: parameters, gradients and plain references.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "core/parallel.h"
#include "core/rng.h"
#include "ops/dense/copy.h"
#include "optim/optimizer.h"

namespace frugal::optim {

// Normal numbers, equal in every dtype.
inline Tensor normals(const Shape& shape, uint64_t seed, DType dtype, double scale = 1) {
  const Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto at = static_cast<uint64_t>(i);
    const double radius = std::sqrt(-2 * std::log(1 - static_cast<double>(uniform({seed, 0}, at))));
    const double angle = 2 * M_PI * static_cast<double>(uniform({seed, 1}, at));
    x.mut<float>()[i] = static_cast<float>(scale * radius * std::cos(angle));
  }
  return ops::cast(x, dtype);
}

inline std::vector<ParameterGroup> group(const Variable& p, double decay = 0, double scale = 1) {
  return {{{{"p", p}}, scale, decay}};
}

// |a - b| / |b|
inline double relative_error(const Tensor& a, const std::vector<double>& b) {
  double error = 0, total = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = a.item(static_cast<int64_t>(i)) - b[i];
    error += d * d;
    total += b[i] * b[i];
  }
  return std::sqrt(error / total);
}

inline double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  return std::sqrt(sum);
}

// The error of p after 20 steps of `optimizer`, relative to the parameters p of a plain reference
// that gets the gradients and rates which the optimizer gets. `rate`: of a step.
template <class Reference>
double error_of_steps(
    Optimizer& optimizer, Variable p, Reference& reference,
    const std::function<double(int)>& rate = [](int) { return 0.01; }) {
  for (int t = 0; t < 20; ++t) {
    const Tensor g = normals(p.shape(), 100 + static_cast<uint64_t>(t), p.dtype());
    p.set_grad(g);
    optimizer.step(rate(t));
    reference.step(g.to_vector(), rate(t));
  }
  return relative_error(p.value(), reference.p);
}

inline int64_t optimizer_bytes(Device device = kCpu) {
  return allocator(device).report().of(Category::optimizer);
}

// A few steps with gradients of their own; the parameter's values afterwards.
inline std::vector<double> run_steps(Optimizer& optimizer, Variable p, int first, int last,
                                     double lr) {
  for (int t = first; t < last; ++t) {
    p.set_grad(normals(p.shape(), 100 + static_cast<uint64_t>(t), p.dtype()));
    optimizer.step(lr);
  }
  return p.value().to_vector();
}

// 400 steps on a noisy quadratic with curvatures over two decades. Returns the mean loss of the
// last tenth.
inline double noisy_quadratic(Optimizer& optimizer, Variable p, double lr) {
  const Tensor goal = normals(p.shape(), 7, DType::f32);
  const int steps = 400;
  double total = 0;
  for (int t = 0; t < steps; ++t) {
    const Tensor g = normals(p.shape(), 1000 + static_cast<uint64_t>(t), DType::f32, 0.1);
    double loss = 0;
    for (int64_t i = 0; i < g.numel(); ++i) {
      const double curvature = std::pow(10.0, -static_cast<double>(i % 17) / 8);
      const double off = static_cast<double>(p.value().data<float>()[i] - goal.data<float>()[i]);
      loss += curvature * off * off / 2;
      g.mut<float>()[i] += static_cast<float>(curvature * off);
    }
    if (t >= steps * 9 / 10) total += loss / static_cast<double>(g.numel()) / (steps / 10);
    p.set_grad(g);
    optimizer.step(lr);
  }
  return total;
}

class Threads {
 public:
  explicit Threads(int threads) : before_(num_threads()) { set_num_threads(threads); }
  ~Threads() { set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

}  // namespace frugal::optim
