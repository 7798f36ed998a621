#include "ops/loss/binary_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"
#include "ops/simd/scalar_math.h"

namespace frugal::ops {
namespace {

// Each target is checked in a way that also finds NaN.
template <class T, class Wide = T>
void check_shares(const Tensor& target) {
  const T* const shares = target.data<T>();
  for (int64_t i = 0; i < target.numel(); ++i) {
    const auto share = static_cast<Wide>(shares[i]);
    FRUGAL_CHECK(share >= 0 && share <= 1,
                 "[binary_cross_entropy] expected targets in [0, 1], got {} in element {}", share,
                 i);
  }
}

void check_shares(const Tensor& target) {
  if (target.dtype() == DType::bf16) return check_shares<BFloat16, float>(target);
  with_real(target.dtype(), [&](auto zero) { check_shares<decltype(zero)>(target); });
}

// The loss of one element. `slope` becomes sigmoid(x) - t.
template <class T>
double element_loss(T x, T t, T& slope) {
  // With a target of 0 or 1, an infinite logit on the right side has loss 0. The formula x t alone
  // would give NaN.
  const T small = math::exp(-std::fabs(x));
  slope = (x >= 0 ? 1 / (1 + small) : small / (1 + small)) - t;
  // A target of 0 or 1 takes an infinite logit of its own side, where x t alone would be NaN.
  const double linear = x >= 0
                            ? (t == 1 ? 0 : static_cast<double>(x) * (1 - static_cast<double>(t)))
                            : (t == 0 ? 0 : -static_cast<double>(x) * static_cast<double>(t));
  return std::isnan(x) ? static_cast<double>(x) : linear + std::log1p(static_cast<double>(small));
}

}  // namespace

void binary_cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                                 const BinaryCrossEntropyResult& result,
                                 const BinaryCrossEntropyOptions& options,
                                 const Tensor& row_weights) {
  constexpr int64_t kChunk = 1 << 10;  // elements whose losses are added in one sum
  const int64_t n = logits.numel(), chunks = (n + kChunk - 1) / kChunk;
  const int64_t rows = row_weights.defined() ? row_weights.numel() : 1;
  const int64_t width = std::max<int64_t>(n / std::max<int64_t>(rows, 1), 1);
  std::vector<double> partial(static_cast<size_t>(chunks));
  check_shares(target);
  with_real(result.loss.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* weights = row_weights.defined() ? row_weights.data<T>() : nullptr;
    double divisor = static_cast<double>(n);
    if (weights != nullptr) {
      divisor = 0;
      for (int64_t row = 0; row < rows; ++row) divisor += static_cast<double>(weights[row]);
      divisor *= static_cast<double>(width);
    }
    if (options.sum) divisor = 1;
    const double factor = divisor == 0 ? 0 : 1 / divisor;
    for_real_rows(n, 1, kChunk, kExponentialGrain, {&logits, &target}, {&result.gradient},
                  [&](const auto& in, const auto& out, int64_t first, int64_t count) {
                    using X = std::remove_pointer_t<std::decay_t<decltype(out[0])>>;
                    double& total = partial[static_cast<size_t>(first / kChunk)];
                    for (int64_t i = 0; i < count; ++i) {
                      const double weight = weights == nullptr
                                                ? 1
                                                : static_cast<double>(weights[(first + i) / width]);
                      out[0][i] = 0;
                      if (weight == 0) continue;
                      X slope{};
                      total += weight * element_loss<X>(in[0][i], in[1][i], slope);
                      out[0][i] = static_cast<X>(factor * weight) * slope;
                    }
                  });
    double total = 0;
    for (const double term : partial) total += term;
    *result.loss.mut<T>() = static_cast<T>(total / divisor);
  });
}

void binary_cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& gradient,
                                          const Tensor& dx) {
  scale_into(gradient, dy.item(), dx);
}

BinaryCrossEntropyResult binary_cross_entropy(const Tensor& logits, const Tensor& target,
                                              const BinaryCrossEntropyOptions& options,
                                              const Tensor& row_weights) {
  check_real("binary_cross_entropy", "logits", logits);
  check_shape("binary_cross_entropy", "target", target, logits.shape());
  if (row_weights.defined()) {
    FRUGAL_CHECK(logits.dim() >= 1,
                 "[binary_cross_entropy] expected logits with at least 1 axis for row_weights, "
                 "got {}",
                 describe(logits));
    check_shape("binary_cross_entropy", "row_weights", row_weights, {logits.size(0)});
  }
  check_same("binary_cross_entropy", logits, {&target});
  check_beside("binary_cross_entropy", logits, {&row_weights});
  const DType dtype = dtype_beside(logits);
  BinaryCrossEntropyResult result{Tensor::empty({}, dtype, logits.device()),
                                  Tensor::empty(logits.shape(), logits.dtype(), logits.device())};
  const Tensor x = contiguous(logits), t = contiguous(target);
  const Tensor weights = contiguous_or_none(row_weights);
  dispatch(x.device(), [&](auto backend) {
    binary_cross_entropy_kernel(backend, x, t, result, options, weights);
  });
  return result;
}

Tensor binary_cross_entropy_backward(const Tensor& dy, const Tensor& gradient) {
  check_real("binary_cross_entropy_backward", "gradient", gradient);
  check_shape("binary_cross_entropy_backward", "dy", dy, {});
  check_beside("binary_cross_entropy_backward", gradient, {&dy});
  const Tensor dx = Tensor::empty(gradient.shape(), gradient.dtype(), gradient.device());
  const Tensor from = contiguous(gradient);
  dispatch(dx.device(),
           [&](auto backend) { binary_cross_entropy_backward_kernel(backend, dy, from, dx); });
  return dx;
}

}  // namespace frugal::ops
