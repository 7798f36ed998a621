#include "ops/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/reduce.h"
#include "ops/softmax_loops.h"

namespace frugal::ops {
namespace {

using simd::log_sum_exp_rows;
using simd::shifted_exp_row;

constexpr int64_t kChunkRows = 64;   // rows whose losses are added apart, whoever computes them
constexpr int64_t kGrain = 1 << 12;  // elements; each costs an exponential

struct Totals {
  double loss = 0;
  int64_t correct = 0;
};

int64_t count_kept(const int64_t* target, int64_t n, int64_t ignore_index) {
  return n - std::count(target, target + n, ignore_index);
}

void check_targets(const int64_t* target, int64_t n, int64_t classes, int64_t ignore_index) {
  for (int64_t row = 0; row < n; ++row)
    FRUGAL_CHECK(
        (target[row] >= 0 && target[row] < classes) || target[row] == ignore_index,
        "[cross_entropy] expected targets in [0, {}) or the ignored index {}, got {} in row {}",
        classes, ignore_index, target[row], row);
}

// f64: the reference. f32: simd::log_sum_exp_rows.
void log_sum_exp_rows(const double* x, double* lse, int64_t* top, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, x += width) {
    top[row] = std::max_element(x, x + width) - x;
    double total = 0;
    for (int64_t c = 0; c < width; ++c) total += std::exp(x[c] - x[top[row]]);
    lse[row] = x[top[row]] + std::log(total);
  }
}

void shifted_exp_row(const double* x, double shift, double factor, double term, double* y,
                     int64_t width) {
  for (int64_t c = 0; c < width; ++c) y[c] = factor * (std::exp(x[c] - shift) - term);
}

template <class T>
double row_loss(const T* x, int64_t classes, int64_t target, T lse, double smoothing) {
  const double plain = static_cast<double>(lse) - static_cast<double>(x[target]);
  if (smoothing == 0) return plain;  // 0 times an infinite term would be NaN
  double total = 0;
  for (int64_t c = 0; c < classes; ++c)
    total += static_cast<double>(lse) - static_cast<double>(x[c]);
  return (1 - smoothing) * plain + smoothing / static_cast<double>(classes) * total;
}

void check_inputs(const char* op, const Tensor& logits, const Tensor& target,
                  const CrossEntropyOptions& options) {
  check_real(op, "logits", logits);
  check_dim(op, "logits", logits, 2);
  FRUGAL_CHECK(logits.size(1) > 0, "[{}] expected at least one class, got logits {}", op,
               describe(logits));
  check_shape(op, "target", target, {logits.size(0)});
  FRUGAL_CHECK(target.dtype() == DType::i64 && target.device() == logits.device(),
               "[{}] expected target of dtype i64 on {}, got {}", op, logits.device().str(),
               describe(target));
  FRUGAL_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
               "[{}] expected label_smoothing in [0, 1], got {}", op, options.label_smoothing);
}

}  // namespace

void cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options) {
  const int64_t n = logits.size(0), classes = logits.size(1);
  const int64_t* at = target.data<int64_t>();
  check_targets(at, n, classes, options.ignore_index);
  const int64_t counted = count_kept(at, n, options.ignore_index);
  const int64_t chunks = (n + kChunkRows - 1) / kChunkRows;
  std::vector<Totals> partial(static_cast<size_t>(chunks));
  with_real(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.data<T>();
    T* lse = result.lse.mut<T>();
    parallel_for(
        0, chunks, std::max<int64_t>(1, kGrain / (kChunkRows * classes)),
        [&](int64_t begin, int64_t end) {
          for (int64_t chunk = begin; chunk < end; ++chunk) {
            Totals totals;
            std::array<int64_t, kChunkRows> tops;
            const int64_t first = chunk * kChunkRows;
            const int64_t stop = std::min(n, first + kChunkRows);
            log_sum_exp_rows(x + first * classes, lse + first, tops.data(), stop - first, classes);
            for (int64_t row = first; row < stop; ++row) {
              const T* from = x + row * classes;
              if (at[row] == options.ignore_index) continue;
              totals.loss += row_loss(from, classes, at[row], lse[row], options.label_smoothing);
              totals.correct += tops[static_cast<size_t>(row - first)] == at[row] ? 1 : 0;
            }
            partial[static_cast<size_t>(chunk)] = totals;
          }
        });
    Totals all;
    for (const Totals& totals : partial) {
      all.loss += totals.loss;
      all.correct += totals.correct;
    }
    *result.loss.mut<T>() = static_cast<T>(all.loss / static_cast<double>(counted));
    *result.correct.mut<int64_t>() = all.correct;
    *result.counted.mut<int64_t>() = counted;
  });
}

void cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options) {
  const int64_t n = logits.size(0), classes = logits.size(1);
  const int64_t* at = target.data<int64_t>();
  const int64_t counted = count_kept(at, n, options.ignore_index);
  with_real(logits.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* x = logits.data<T>();
    const T* log_sums = lse.data<T>();
    T* to = dx.mut<T>();
    const T factor = static_cast<T>(static_cast<double>(*dy.data<T>()) /
                                    static_cast<double>(std::max<int64_t>(counted, 1)));
    const T even = static_cast<T>(options.label_smoothing / static_cast<double>(classes));
    const T sharp = static_cast<T>(1 - options.label_smoothing);
    parallel_for(0, n, std::max<int64_t>(1, kGrain / classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* from = x + row * classes;
        T* out = to + row * classes;
        if (at[row] == options.ignore_index) {
          std::fill_n(out, classes, T{0});
          continue;
        }
        shifted_exp_row(from, log_sums[row], factor, even, out, classes);
        out[at[row]] -= factor * sharp;
      }
    });
  });
}

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options) {
  check_inputs("cross_entropy", logits, target, options);
  const Device device = logits.device();
  CrossEntropyResult result{Tensor::empty({}, logits.dtype(), device),
                            Tensor::empty({logits.size(0)}, logits.dtype(), device),
                            Tensor::empty({}, DType::i64, device),
                            Tensor::empty({}, DType::i64, device)};
  const Tensor x = contiguous(logits), at = contiguous(target);
  dispatch(device, [&](auto backend) { cross_entropy_kernel(backend, x, at, result, options); });
  return result;
}

Tensor cross_entropy_backward(const Tensor& dy, const Tensor& logits, const Tensor& target,
                              const Tensor& lse, const CrossEntropyOptions& options) {
  check_inputs("cross_entropy_backward", logits, target, options);
  check_shape("cross_entropy_backward", "dy", dy, {});
  check_shape("cross_entropy_backward", "lse", lse, {logits.size(0)});
  check_same("cross_entropy_backward", logits, {&dy, &lse});
  Tensor dx = Tensor::empty(logits.shape(), logits.dtype(), logits.device());
  const Tensor x = contiguous(logits), at = contiguous(target), sums = contiguous(lse);
  dispatch(logits.device(), [&](auto backend) {
    cross_entropy_backward_kernel(backend, dy, x, at, sums, dx, options);
  });
  return dx;
}

int64_t count_correct(const Tensor& logits, const Tensor& target) {
  check_inputs("count_correct", logits, target, {});
  const CategoryScope scope(Category::workspace);
  const Tensor top = argmax(logits, 1), at = contiguous(target);
  int64_t correct = 0;
  if (logits.device().type == DeviceType::meta) return correct;
  for (int64_t row = 0; row < logits.size(0); ++row)
    correct += top.data<int64_t>()[row] == at.data<int64_t>()[row] ? 1 : 0;
  return correct;
}

}  // namespace frugal::ops
