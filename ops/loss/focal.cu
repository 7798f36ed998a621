#include "ops/loss/focal.h"

#include <limits>

#include "ops/cuda/cuda_sum.h"

// The host reads nothing back, so it cannot refuse a wrong target. The row's loss is NaN instead.
namespace frugal::ops {
namespace {

struct FocalCounts {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t ignored;
  const int64_t* target;
  __device__ void operator()(int64_t, int64_t row, int64_t, double* terms) const {
    terms[0] = target[row] == ignored ? 0 : 1;
  }
};
struct StoreFocalDivisor {
  bool sum;
  double* divisor;
  __device__ void operator()(int64_t, double total) const { *divisor = sum ? 1 : total; }
};

// Writes the gradients, and adds the losses.
template <class T>
struct FocalLosses {
  using Term = double;
  static constexpr int kWidth = 1;
  int64_t classes, ignored;
  double gamma;
  const double* divisor;
  const T* x;
  const int64_t* target;
  const float* weights;  // weights of classes; null: all are 1
  T* gradient;
  __device__ void operator()(int64_t, int64_t row, int64_t, double* terms) const {
    const T* from = x + row * classes;
    T* to = gradient + row * classes;
    const int64_t right = target[row];
    const bool wrong = right != ignored && (right < 0 || right >= classes);
    const double weight = right == ignored     ? 0
                          : wrong              ? std::numeric_limits<double>::quiet_NaN()
                          : weights == nullptr ? 1
                                               : static_cast<double>(weights[right]);
    terms[0] = 0;
    if (weight == 0) {
      for (int64_t c = 0; c < classes; ++c) to[c] = T{};
      return;
    }
    float most = -std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < classes; ++c) {
      const float v = cuda::load(from[c]);
      most = v > most ? v : most;
    }
    const auto top = static_cast<double>(most);
    double total = 0, others = 0;
    for (int64_t c = 0; c < classes; ++c) {
      const double term = ::exp(static_cast<double>(cuda::load(from[c])) - top);
      total += term;
      if (c != right) others += term;
    }
    const double log_sum = top + ::log(total);
    const double log_p = wrong ? 0 : static_cast<double>(cuda::load(from[right])) - log_sum;
    const double rest = others / total, power = ::pow(rest, gamma);
    const double steep = gamma == 0 || rest == 0 ? 0 : gamma * power / rest * ::exp(log_p) * log_p;
    const double factor = weight / *divisor * (steep - power);
    for (int64_t c = 0; c < classes; ++c) {
      const double probability = ::exp(static_cast<double>(cuda::load(from[c])) - log_sum);
      to[c] = cuda::store<T>(static_cast<float>(factor * (c == right ? rest : -probability)));
    }
    terms[0] = wrong ? weight : power == 0 ? 0 : -weight * power * log_p;
  }
};
struct StoreFocalLoss {
  const double* divisor;
  float* loss;
  __device__ void operator()(int64_t, double total) const {
    *loss = static_cast<float>(total / *divisor);
  }
};

}  // namespace

void focal_cross_entropy_kernel(Cuda, const Tensor& logits, const Tensor& target,
                                const FocalResult& result, const FocalOptions& options,
                                const Tensor& class_weights) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const int64_t* at = target.data<int64_t>();
  const CategoryScope scope(Category::workspace);
  const Tensor divisor = Tensor::empty({}, DType::f64, logits.device());
  cuda::sum_over<double>(logits.device(), 1, rows, 1, FocalCounts{options.ignore_index, at},
                         StoreFocalDivisor{options.sum, divisor.mut<double>()});
  cuda::with_activation(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::sum_over<double>(
        logits.device(), 1, rows, 1,
        FocalLosses<T>{classes, options.ignore_index, options.gamma, divisor.data<double>(),
                       logits.data<T>(), at,
                       class_weights.defined() ? class_weights.data<float>() : nullptr,
                       result.gradient.mut<T>()},
        StoreFocalLoss{divisor.data<double>(), result.loss.mut<float>()});
  });
}

}  // namespace frugal::ops
