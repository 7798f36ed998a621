#include "ops/loss/binary_cross_entropy.h"

#include <algorithm>
#include <limits>

#include "core/finite.h"
#include "ops/cuda/cuda_map.h"
#include "ops/cuda/cuda_sum.h"
#include "ops/simd/scalar_math.h"

namespace frugal::ops {
namespace {

struct Weights {
  using Term = double;
  static constexpr int kWidth = 1;
  const float* weight;
  __device__ void operator()(int64_t, int64_t r, int64_t, double* terms) const {
    terms[0] = static_cast<double>(weight[r]);
  }
};
struct StoreDivisor {
  double width;
  double* divisor;
  __device__ void operator()(int64_t, double total) const { *divisor = total * width; }
};

// The divisor of the weighted losses: a number, or a sum that the device has made.
struct Divisor {
  double number;
  const double* sum;
  __device__ double value() const { return sum == nullptr ? number : *sum; }
};

// Writes the gradients, and adds the losses.
template <class T>
struct Losses {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t width;  // elements of a row
  Divisor divisor;
  const T *x, *target;
  const float* weights;
  T* gradient;
  __device__ void operator()(int64_t, int64_t r, int64_t, double* terms) const {
    const double weight = weights == nullptr ? 1 : static_cast<double>(weights[r / width]);
    terms[0] = 0;
    gradient[r] = T{};
    if (weight == 0) return;
    const float v = cuda::load(x[r]), t = cuda::load(target[r]);
    const float small = math::exp(-fabsf(v));  // in (0, 1]: never overflows
    const float slope = (v >= 0 ? 1 / (1 + small) : small / (1 + small)) - t;
    // With a target of 0 or 1, an infinite logit on the right side has loss 0. The formula v t
    // alone would give NaN.
    const double linear = v >= 0
                              ? (t == 1 ? 0 : static_cast<double>(v) * (1 - static_cast<double>(t)))
                              : (t == 0 ? 0 : -static_cast<double>(v) * static_cast<double>(t));
    double loss = is_nan(v) ? static_cast<double>(v) : linear + static_cast<double>(log1pf(small));
    if (!(t >= 0 && t <= 1)) loss = std::numeric_limits<double>::quiet_NaN();
    terms[0] = weight * loss;
    const double total = divisor.value(), factor = total == 0 ? 0 : 1 / total;
    gradient[r] = cuda::store<T>(static_cast<float>(factor * weight) * slope);
  }
};
struct StoreQuotient {
  Divisor divisor;
  float* loss;
  __device__ void operator()(int64_t, double total) const {
    *loss = static_cast<float>(total / divisor.value());
  }
};

struct Scale {
  const float* dy;
  __device__ float operator()(float gradient) const { return *dy * gradient; }
};

}  // namespace

void binary_cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                                 const BinaryCrossEntropyResult& result,
                                 const BinaryCrossEntropyOptions& options,
                                 const Tensor& row_weights) {
  const int64_t n = logits.numel(), rows = row_weights.defined() ? row_weights.numel() : 1;
  const int64_t width = std::max<int64_t>(n / std::max<int64_t>(rows, 1), 1);
  const float* weights = row_weights.defined() ? row_weights.data<float>() : nullptr;
  Divisor divisor{options.sum ? 1.0 : static_cast<double>(n), nullptr};
  const CategoryScope scope(Category::workspace);
  Tensor sum;
  if (weights != nullptr && !options.sum) {
    sum = Tensor::empty({}, DType::f64, logits.device());
    cuda::sum_over<double>(logits.device(), 1, rows, 1, Weights{weights},
                           StoreDivisor{static_cast<double>(width), sum.mut<double>()});
    divisor.sum = sum.data<double>();
  }
  cuda::with_activation(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::sum_over<double>(logits.device(), 1, n, 1,
                           Losses<T>{width, divisor, logits.data<T>(), target.data<T>(), weights,
                                     result.gradient.mut<T>()},
                           StoreQuotient{divisor, result.loss.mut<float>()});
  });
}

void binary_cross_entropy_backward_kernel(Cuda, const Tensor& dy, const Tensor& gradient,
                                          const Tensor& dx) {
  cuda::map(Scale{dy.data<float>()}, dx, gradient);
}

}  // namespace frugal::ops
