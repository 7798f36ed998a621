#include "ops/optimizer/sgd.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/computed.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/sgd_loops.h"
#include "ops/optimizer/trained.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

constexpr int64_t kSums = 8;  // separate sums, so that no addition waits for the one before

template <class T>
double squares_of(const T* values, int64_t n) {
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= n; i += kSums)
    for (int64_t k = 0; k < kSums; ++k) {
      const auto value = static_cast<double>(static_cast<Computed<T>>(values[i + k]));
      sums[k] += value * value;
    }
  for (int64_t k = 0; i + k < n; ++k) {
    const auto value = static_cast<double>(static_cast<Computed<T>>(values[i + k]));
    sums[k] += value * value;
  }
  return std::accumulate(sums, sums + kSums, 0.0);
}

void sgd_update(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity,
                const SgdStep& step) {
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* __restrict p = parameter.mut<T>();
    const T* __restrict g = gradient.data<T>();
    const auto f = SgdFactors<T>::of(step);
    parallel_for(0, parameter.numel(), kCopyGrain, [&](int64_t begin, int64_t end) {
      if (velocity.defined()) {
        sgd_loop(p + begin, g + begin, velocity.mut<T>() + begin, end - begin, f);
        return;
      }
      for (int64_t i = begin; i < end; ++i) p[i] -= f.lr * (g[i] + f.decay * p[i]);
    });
  });
}

}  // namespace

void sgd_steps_kernel(Cpu, const std::vector<SgdUpdate>& updates) {
  for (const SgdUpdate& u : updates) sgd_update(u.parameter, u.gradient, u.velocity, u.step);
}

void sum_of_squares_kernel(Cpu, const Tensor& x, double& sum) {
  with_computed(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* values = x.data<T>();
    constexpr int64_t kChunk = 1 << 15;  // elements whose squares are added in one sum
    const int64_t n = x.numel(), chunks = (n + kChunk - 1) / kChunk;
    std::vector<double> partial(static_cast<size_t>(chunks));
    parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = chunk * kChunk;
        partial[static_cast<size_t>(chunk)] =
            squares_of(values + first, std::min(kChunk, n - first));
      }
    });
    for (double total : partial) sum += total;
  });
}

void sgd_steps(const std::vector<SgdUpdate>& updates) {
  if (updates.empty()) return;
  std::vector<SgdUpdate> dense = updates;
  for (SgdUpdate& u : dense) {
    check_trained("sgd", u.parameter, updates.front().parameter.device());
    check_shape("sgd", "the gradient", u.gradient, u.parameter.shape());
    FRUGAL_CHECK(u.velocity.defined() == (u.step.momentum != 0),
                 "[sgd] expected a velocity exactly when momentum is not 0");
    if (u.velocity.defined()) check_shape("sgd", "the velocity", u.velocity, u.parameter.shape());
    check_same("sgd", u.parameter, {&u.gradient, &u.velocity});
    u.gradient = contiguous(u.gradient);
  }
  dispatch(dense.front().parameter.device(),
           [&](auto backend) { sgd_steps_kernel(backend, dense); });
  for (const SgdUpdate& u : dense) {
    u.parameter.bump_version();
    if (u.velocity.defined()) u.velocity.bump_version();
  }
}

double sum_of_squares(const Tensor& x) {
  check_real("sum_of_squares", "x", x);
  double sum = 0;
  const Tensor dense = contiguous(x);
  dispatch(x.device(), [&](auto backend) { sum_of_squares_kernel(backend, dense, sum); });
  return sum;
}

}  // namespace frugal::ops
