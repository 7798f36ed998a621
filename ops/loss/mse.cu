#include "ops/loss/mse.h"

#include "ops/cuda/cuda_map.h"
#include "ops/cuda/cuda_sum.h"

namespace frugal::ops {
namespace {

// Writes the differences, and adds their squares.
template <class T>
struct Differences {
  using Term = double;
  static constexpr int kWidth = 1;
  const T *x, *target;
  T* difference;
  __device__ void operator()(int64_t, int64_t r, int64_t, double* terms) const {
    const float d = cuda::load(x[r]) - cuda::load(target[r]);
    difference[r] = cuda::store<T>(d);
    terms[0] = static_cast<double>(d) * static_cast<double>(d);
  }
};
struct StoreMean {
  double n;
  float* loss;
  __device__ void operator()(int64_t, double total) const { *loss = static_cast<float>(total / n); }
};
struct ScaleDifference {
  const float* dy;
  double n;
  __device__ float operator()(float difference) const {
    return static_cast<float>(2 * static_cast<double>(*dy) / n) * difference;
  }
};

}  // namespace

void mse_kernel(Cuda, const Tensor& x, const Tensor& target, const MseResult& result) {
  const StoreMean store{static_cast<double>(x.numel()), result.loss.mut<float>()};
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::sum_over<double>(
        x.device(), 1, x.numel(), 1,
        Differences<T>{x.data<T>(), target.data<T>(), result.difference.mut<T>()}, store);
  });
}

void mse_backward_kernel(Cuda, const Tensor& dy, const Tensor& difference, const Tensor& dx) {
  cuda::map(ScaleDifference{dy.data<float>(), static_cast<double>(dx.numel())}, dx, difference);
}

}  // namespace frugal::ops
