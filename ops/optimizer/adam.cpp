#include "ops/optimizer/adam.h"

#include <algorithm>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/adam_loops.h"
#include "ops/optimizer/trained.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

void check_step(const char* op, Device device, const Tensor& parameter, const Tensor& gradient,
                const Tensor& m, const Tensor& v, const AdamStep& step) {
  check_trained(op, parameter, device);
  check_shape(op, "the gradient", gradient, parameter.shape());
  check_shape(op, "the first moment", m, parameter.shape());
  check_shape(op, "the second moment", v, parameter.shape());
  check_same(op, parameter, {&gradient, &m, &v});
  FRUGAL_CHECK(step.step >= 1, "[{}] expected a step of at least 1, got {}", op, step.step);
}

void adam_update(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
                 const AdamStep& step) {
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto factors = AdamFactors<T>::of(step);
    parallel_for(0, parameter.numel(), kArithmeticGrain, [&](int64_t begin, int64_t end) {
      adam_loop(parameter.mut<T>() + begin, gradient.data<T>() + begin, m.mut<T>() + begin,
                v.mut<T>() + begin, end - begin, factors);
    });
  });
}

}  // namespace

void adam_steps_kernel(Cpu, const std::vector<AdamUpdate>& updates) {
  for (const AdamUpdate& u : updates) adam_update(u.parameter, u.gradient, u.m, u.v, u.step);
}

namespace {

void lamb_update(const LambUpdate& all) {
  // Not a structured binding: Clang 16 captures none in a parallel loop.
  const auto& parameter = all.parameter;
  const auto& gradient = all.gradient;
  const auto& m = all.m;
  const auto& v = all.v;
  const auto& step = all.step;
  const bool adapt = all.adapt;
  constexpr int64_t kChunk = 1 << 12;  // elements whose squares are added in one sum
  const int64_t n = parameter.numel(), chunks = (n + kChunk - 1) / kChunk;
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto factors = AdamFactors<T>::of_lamb(step);
    std::vector<SquaredNorms> partial(static_cast<size_t>(chunks));
    parallel_for(0, chunks, kArithmeticGrain / kChunk, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t at = chunk * kChunk;
        partial[static_cast<size_t>(chunk)] =
            lamb_moments_loop(parameter.data<T>() + at, gradient.data<T>() + at, m.mut<T>() + at,
                              v.mut<T>() + at, std::min(kChunk, n - at), factors);
      }
    });
    SquaredNorms norms;
    for (const SquaredNorms& part : partial) {
      norms.parameter += part.parameter;
      norms.update += part.update;
    }
    double ratio = std::sqrt(norms.parameter / norms.update);
    if (!adapt || !std::isfinite(ratio) || ratio == 0) ratio = 1;
    parallel_for(0, n, kArithmeticGrain, [&](int64_t begin, int64_t end) {
      lamb_update_loop(parameter.mut<T>() + begin, m.data<T>() + begin, v.data<T>() + begin,
                       end - begin, static_cast<T>(step.lr * ratio), factors);
    });
  });
}

}  // namespace

void lamb_steps_kernel(Cpu, const std::vector<LambUpdate>& updates) {
  for (const LambUpdate& u : updates) lamb_update(u);
}

void average_into_kernel(Cpu, const std::vector<Average>& averages, double share) {
  for (const Average& a : averages)
    with_real(a.average.dtype(), [&](auto zero) {
      using T = decltype(zero);
      T* __restrict to = a.average.mut<T>();
      const T* __restrict from = a.value.data<T>();
      const T part = static_cast<T>(share);
      parallel_for(0, a.average.numel(), kArithmeticGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] += part * (from[i] - to[i]);
      });
    });
}

namespace {

// Checks all updates, runs the kernel of the backend, and raises the versions of written tensors.
template <class Update, class Kernel>
void run_steps(const char* op, std::vector<Update> updates, const Kernel& kernel) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  for (Update& u : updates) {
    check_step(op, device, u.parameter, u.gradient, u.m, u.v, u.step);
    u.gradient = contiguous(u.gradient);
  }
  dispatch(device, [&](auto backend) { kernel(backend, updates); });
  for (const Update& u : updates)
    for (const Tensor* written : {&u.parameter, &u.m, &u.v}) written->bump_version();
}

}  // namespace

void adam_steps(const std::vector<AdamUpdate>& updates) {
  run_steps("adam", updates,
            [](auto backend, const auto& all) { adam_steps_kernel(backend, all); });
}

void lamb_steps(const std::vector<LambUpdate>& updates) {
  run_steps("lamb", updates,
            [](auto backend, const auto& all) { lamb_steps_kernel(backend, all); });
}

void average_into(const std::vector<Average>& averages, double share) {
  if (averages.empty()) return;
  const Device device = averages.front().average.device();
  std::vector<Average> dense = averages;
  for (Average& a : dense) {
    check_trained("average", a.average, device);
    check_shape("average", "the value", a.value, a.average.shape());
    check_same("average", a.average, {&a.value});
    a.value = contiguous(a.value);
  }
  dispatch(device, [&](auto backend) { average_into_kernel(backend, dense, share); });
  for (const Average& a : dense) a.average.bump_version();
}

}  // namespace frugal::ops
