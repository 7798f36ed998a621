#include "ops/loss/soft_cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// How many rows count. Each share is checked in a way that also finds NaN.
template <class T>
int64_t count_rows(const T* target, int64_t rows, int64_t classes) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row, target += classes) {
    if (target[0] < 0) continue;
    ++count;
    for (int64_t c = 0; c < classes; ++c)
      FRUGAL_CHECK(target[c] >= 0 && std::isfinite(target[c]),
                   "[soft_cross_entropy] expected shares of at least 0, got {} of class {} in row "
                   "{}",
                   target[c], c, row);
  }
  return count;
}

// The loss of a row. `gradient` becomes that of the row's loss, times `factor`.
template <class T>
double soft_cross_entropy_row(const T* x, const T* target, int64_t classes, double smoothing,
                              double factor, T* gradient) {
  const auto top = static_cast<double>(*std::max_element(x, x + classes));
  double total = 0;
  for (int64_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(x[c]) - top);
  const double log_sum = top + std::log(total), even = smoothing / static_cast<double>(classes);
  const auto share_of = [&](int64_t c) {
    return (1 - smoothing) * static_cast<double>(target[c]) + even;
  };
  double loss = 0, shares = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const double share = share_of(c);
    shares += share;
    if (share != 0) loss += share * (log_sum - static_cast<double>(x[c]));
  }
  for (int64_t c = 0; c < classes; ++c) {
    const double probability = std::exp(static_cast<double>(x[c]) - log_sum);
    gradient[c] = static_cast<T>(factor * (shares * probability - share_of(c)));
  }
  return loss;
}

}  // namespace

void soft_cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                               const SoftCrossEntropyResult& result, double label_smoothing) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const int64_t chunks = (rows + kLossRows - 1) / kLossRows;
  std::vector<double> partial(static_cast<size_t>(chunks));
  with_real(target.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto counted = static_cast<double>(count_rows(target.data<T>(), rows, classes));
    const double factor = counted == 0 ? 0 : 1 / counted;
    for_real_rows(rows, classes, kLossRows, rows_at_once(kExponentialGrain, classes),
                  {&logits, &target}, {&result.gradient},
                  [&](const auto& in, const auto& out, int64_t first, int64_t count) {
                    double& loss = partial[static_cast<size_t>(first / kLossRows)];
                    for (int64_t at = 0; at < count * classes; at += classes)
                      if (in[1][at] < 0)
                        std::fill_n(out[0] + at, classes, 0);
                      else
                        loss += soft_cross_entropy_row(in[0] + at, in[1] + at, classes,
                                                       label_smoothing, factor, out[0] + at);
                  });
    double loss = 0;
    for (const double part : partial) loss += part;
    *result.loss.mut<T>() = static_cast<T>(loss / counted);
  });
}

SoftCrossEntropyResult soft_cross_entropy(const Tensor& logits, const Tensor& target,
                                          double label_smoothing) {
  const char* const op = "soft_cross_entropy";
  check_real(op, "logits", logits);
  FRUGAL_CHECK(logits.dim() >= 1 && logits.size(-1) > 0,
               "[{}] expected logits of at least one class, got {}", op, describe(logits));
  check_shape(op, "target", target, logits.shape());
  check_beside(op, logits, {&target});
  FRUGAL_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
               "[{}] expected label_smoothing in [0, 1], got {}", op, label_smoothing);
  const DType dtype = dtype_beside(logits);
  SoftCrossEntropyResult result{Tensor::empty({}, dtype, logits.device()),
                                Tensor::empty(logits.shape(), logits.dtype(), logits.device())};
  const int64_t classes = logits.size(-1);
  const Shape matrix{logits.numel() / classes, classes};
  const Tensor x = contiguous(logits).view(matrix), shares = contiguous(target).view(matrix);
  const SoftCrossEntropyResult flat{result.loss, result.gradient.view(matrix)};
  dispatch(logits.device(), [&](auto backend) {
    soft_cross_entropy_kernel(backend, x, shares, flat, label_smoothing);
  });
  return result;
}

}  // namespace frugal::ops
