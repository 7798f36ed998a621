#include "ops/adam.h"

#include <algorithm>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/adam_loops.h"
#include "ops/checks.h"
#include "ops/copy.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements
constexpr int64_t kChunk = 1 << 12;  // elements whose squares are added apart

void check_step(const char* op, const Tensor& parameter, const Tensor& gradient, const Tensor& m,
                const Tensor& v, const AdamStep& step) {
  check_real(op, "the parameter", parameter);
  check_shape(op, "the gradient", gradient, parameter.shape());
  check_shape(op, "the first moment", m, parameter.shape());
  check_shape(op, "the second moment", v, parameter.shape());
  check_same(op, parameter, {&gradient, &m, &v});
  FRUGAL_CHECK(step.step >= 1, "[{}] expected a step of at least 1, got {}", op, step.step);
}

}  // namespace

void adam_kernel(Cpu, const Tensor& parameter, const Tensor& gradient, const Tensor& m,
                 const Tensor& v, const AdamStep& step) {
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto factors = AdamFactors<T>::of(step);
    parallel_for(0, parameter.numel(), kGrain, [&](int64_t begin, int64_t end) {
      adam_loop(parameter.mut<T>() + begin, gradient.data<T>() + begin, m.mut<T>() + begin,
                v.mut<T>() + begin, end - begin, factors);
    });
  });
}

void lamb_kernel(Cpu, const Tensor& parameter, const Tensor& gradient, const Tensor& m,
                 const Tensor& v, const AdamStep& step, bool adapt) {
  const int64_t n = parameter.numel(), chunks = (n + kChunk - 1) / kChunk;
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto factors = AdamFactors<T>::of_lamb(step);
    std::vector<SquaredNorms> partial(static_cast<size_t>(chunks));
    parallel_for(0, chunks, kGrain / kChunk, [&](int64_t begin, int64_t end) {
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
    parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
      lamb_update_loop(parameter.mut<T>() + begin, m.data<T>() + begin, v.data<T>() + begin,
                       end - begin, static_cast<T>(step.lr * ratio), factors);
    });
  });
}

void average_into_kernel(Cpu, const Tensor& average, const Tensor& value, double share) {
  with_real(average.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* __restrict to = average.mut<T>();
    const T* __restrict from = value.data<T>();
    const T part = static_cast<T>(share);
    parallel_for(0, average.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] += part * (from[i] - to[i]);
    });
  });
}

void adam_step(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
               const AdamStep& step) {
  check_step("adam", parameter, gradient, m, v, step);
  const Tensor dense = contiguous(gradient);
  dispatch(parameter.device(),
           [&](auto backend) { adam_kernel(backend, parameter, dense, m, v, step); });
  for (const Tensor* written : {&parameter, &m, &v}) written->bump_version();
}

void lamb_step(const Tensor& parameter, const Tensor& gradient, const Tensor& m, const Tensor& v,
               const AdamStep& step, bool adapt) {
  check_step("lamb", parameter, gradient, m, v, step);
  const Tensor dense = contiguous(gradient);
  dispatch(parameter.device(),
           [&](auto backend) { lamb_kernel(backend, parameter, dense, m, v, step, adapt); });
  for (const Tensor* written : {&parameter, &m, &v}) written->bump_version();
}

void average_into(const Tensor& average, const Tensor& value, double share) {
  check_real("average", "the average", average);
  check_shape("average", "the value", value, average.shape());
  check_same("average", average, {&value});
  const Tensor dense = contiguous(value);
  dispatch(average.device(),
           [&](auto backend) { average_into_kernel(backend, average, dense, share); });
  average.bump_version();
}

}  // namespace frugal::ops
