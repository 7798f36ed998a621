#include "ops/loss/cross_entropy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/dtype_switch.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/reduce.h"
#include "ops/dense/softmax_loops.h"
#include "ops/f32_blocks.h"
#include "ops/loss/class_weights.h"
#include "ops/loss/targets.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

using simd::log_sum_exp_rows;
using simd::shifted_exp_row;

struct Totals {
  double loss = 0;
  int64_t correct = 0;
};

// The rows that are not ignored, and the divisor of the sum of their losses.
struct Kept {
  int64_t rows = 0;
  double divisor = 0;
};

// weights: null, or of type T.
template <class T>
Kept count_kept(const int64_t* target, const T* weights, int64_t n,
                const CrossEntropyOptions& options) {
  Kept kept;
  for (int64_t row = 0; row < n; ++row) {
    if (target[row] == options.ignore_index) continue;
    ++kept.rows;
    kept.divisor += weights == nullptr ? 1 : static_cast<double>(weights[row]);
  }
  if (options.sum) kept.divisor = 1;
  return kept;
}

void check_classes(const int64_t* target, int64_t n, int64_t classes, int64_t ignore_index) {
  for (int64_t row = 0; row < n; ++row)
    FRUGAL_CHECK(
        (target[row] >= 0 && target[row] < classes) || target[row] == ignore_index,
        "[cross_entropy] expected targets in [0, {}) or the ignored index {}, got {} in row {}",
        classes, ignore_index, target[row], row);
}

// f64 is the reference. For f32 see simd::log_sum_exp_rows.
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

// A row's loss times its weight. of_classes: the weights of the classes in the term of the
// smoothing, or null: there they weigh as the row does.
template <class T>
double row_loss(const T* x, int64_t classes, int64_t target, T lse, double smoothing, double weight,
                const T* of_classes) {
  // 0 times an infinite term would be NaN.
  const double plain =
      weight == 0 ? 0 : weight * (static_cast<double>(lse) - static_cast<double>(x[target]));
  if (smoothing == 0 || (weight == 0 && of_classes == nullptr)) return plain;
  double total = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const double each = of_classes == nullptr ? weight : static_cast<double>(of_classes[c]);
    if (each != 0) total += each * (static_cast<double>(lse) - static_cast<double>(x[c]));
  }
  return (1 - smoothing) * plain + smoothing / static_cast<double>(classes) * total;
}

void check_cross_entropy(const char* op, const Tensor& logits, const Tensor& target,
                         const EntropyWeights& weights, const CrossEntropyOptions& options) {
  const Shape rows = check_targets(op, logits, target);
  FRUGAL_CHECK(!weights.rows.defined() || !weights.classes.defined(),
               "[{}] expected weights of rows or of classes, got both", op);
  if (weights.rows.defined()) check_shape(op, "row_weights", weights.rows, rows);
  if (weights.classes.defined())
    check_shape(op, "class_weights", weights.classes, {logits.size(-1)});
  check_beside(op, logits, {&weights.rows, &weights.classes});
  FRUGAL_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
               "[{}] expected label_smoothing in [0, 1], got {}", op, options.label_smoothing);
}

// [..., C] as [rows, C], and [...] as [rows].
Tensor as_matrix(const Tensor& logits) {
  const int64_t classes = logits.size(-1);
  return contiguous(logits).view({logits.numel() / classes, classes});
}
Tensor as_vector(const Tensor& tensor) {
  return tensor.defined() ? contiguous(tensor).view({tensor.numel()}) : tensor;
}

// The weights as kernels take them.
EntropyWeights for_kernel(const EntropyWeights& given, const Tensor& target,
                          const CrossEntropyOptions& options) {
  if (!given.classes.defined()) return as_vector(given.rows);
  const CategoryScope scope(Category::workspace);
  Tensor rows = weights_of_rows(target, given.classes, options.ignore_index);
  return {std::move(rows), options.label_smoothing > 0 ? contiguous(given.classes) : Tensor()};
}

// A new tensor like the logits, or with `overwrite` the logits themselves.
Tensor output_like(const char* op, const Tensor& logits, bool overwrite) {
  FRUGAL_CHECK(!overwrite || logits.is_contiguous(),
               "[{}] expected contiguous logits to write over, got {}", op, describe(logits));
  return overwrite ? logits : Tensor::empty(logits.shape(), logits.dtype(), logits.device());
}

// y = factor * (e^(x - shift) - term). y may be x, which the vector loop does not allow.
template <class T>
void exp_row(const T* x, T shift, T factor, T term, T* y, int64_t width) {
  if (x != y) return shifted_exp_row(x, shift, factor, term, y, width);
  std::array<T, 1024> block;
  for (int64_t start = 0; start < width; start += std::ssize(block)) {
    const int64_t n = std::min<int64_t>(std::ssize(block), width - start);
    shifted_exp_row(x + start, shift, factor, term, block.data(), n);
    std::copy_n(block.data(), n, y + start);
  }
}

// Some rows of logits, and of an output if there is one.
template <class T>
struct Rows {
  const T* in;
  T* out;
  int64_t first, rows;
};

// Calls f(Rows) for blocks of at most `block` rows: of f64, or of f32 for f32 and bf16.
template <class F>
void with_rows(const Tensor& logits, std::initializer_list<const Tensor*> in,
               std::initializer_list<const Tensor*> out, int64_t block, F f) {
  const int64_t n = logits.size(0), classes = logits.size(1);
  const int64_t grain = rows_at_once(kExponentialGrain, classes);
  if (logits.dtype() != DType::f64) {
    for_f32_rows(n, classes, block, grain, in, out, [&](const F32Rows& r) {
      f(Rows<float>{r.in[0], r.out[0], r.first, r.rows});
    });
    return;
  }
  double* const to = out.size() > 0 ? (*out.begin())->mut<double>() : nullptr;
  for (int64_t first = 0; first < n; first += block)
    f(Rows<double>{logits.data<double>() + first * classes,
                   to == nullptr ? to : to + first * classes, first, std::min(block, n - first)});
}

}  // namespace

void cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                          const CrossEntropyResult& result, const CrossEntropyOptions& options,
                          const EntropyWeights& given) {
  const int64_t n = logits.size(0), classes = logits.size(1);
  const int64_t* at = target.data<int64_t>();
  check_classes(at, n, classes, options.ignore_index);
  const int64_t chunks = (n + kLossRows - 1) / kLossRows;
  std::vector<Totals> partial(static_cast<size_t>(chunks));
  with_rows(logits, {&logits}, {}, kLossRows, [&]<class T>(const Rows<T>& r) {
    const T *weights = data_or_null<T>(given.rows), *of_classes = data_or_null<T>(given.classes);
    T* lse = result.lse.mut<T>() + r.first;
    std::array<int64_t, kLossRows> tops;
    Totals& totals = partial[static_cast<size_t>(r.first / kLossRows)];
    log_sum_exp_rows(r.in, lse, tops.data(), r.rows, classes);
    if (result.top.defined())
      std::copy_n(tops.begin(), r.rows, result.top.mut<int64_t>() + r.first);
    for (int64_t i = 0; i < r.rows; ++i) {
      const int64_t row = r.first + i;
      if (at[row] == options.ignore_index) continue;
      totals.correct += tops[static_cast<size_t>(i)] == at[row] ? 1 : 0;
      const double weight = weights == nullptr ? 1 : static_cast<double>(weights[row]);
      totals.loss += row_loss(r.in + i * classes, classes, at[row], lse[i], options.label_smoothing,
                              weight, of_classes);
    }
  });
  Totals all;
  for (const Totals& totals : partial) {
    all.loss += totals.loss;
    all.correct += totals.correct;
  }
  with_real(dtype_beside(logits), [&](auto zero) {
    using T = decltype(zero);
    const Kept kept = count_kept(at, data_or_null<T>(given.rows), n, options);
    *result.loss.mut<T>() = static_cast<T>(all.loss / kept.divisor);
    *result.correct.mut<int64_t>() = all.correct;
    *result.counted.mut<int64_t>() = kept.rows;
  });
}

void cross_entropy_backward_kernel(Cpu, const Tensor& dy, const Tensor& logits,
                                   const Tensor& target, const Tensor& lse, const Tensor& dx,
                                   const CrossEntropyOptions& options,
                                   const EntropyWeights& given) {
  const int64_t n = logits.size(0), classes = logits.size(1);
  const int64_t* at = target.data<int64_t>();
  with_real(dtype_beside(logits), [&](auto zero) {
    using T = decltype(zero);
    const T *weights = data_or_null<T>(given.rows), *of_classes = data_or_null<T>(given.classes);
    const T* log_sums = data_or_null<T>(lse);
    const double divisor = count_kept(at, weights, n, options).divisor;
    const double common = divisor == 0 ? 0 : static_cast<double>(*dy.data<T>()) / divisor;
    const T even = static_cast<T>(options.label_smoothing / static_cast<double>(classes));
    const T sharp = static_cast<T>(1 - options.label_smoothing);
    double all_classes = 0;
    for (int64_t c = 0; of_classes != nullptr && c < classes; ++c)
      all_classes += static_cast<double>(of_classes[c]);
    const double share = options.label_smoothing / static_cast<double>(classes);
    const auto gradients_of = [&](const Rows<T>& r) {
      for (int64_t i = 0; i < r.rows; ++i) {
        const int64_t row = r.first + i;
        T* out = r.out + i * classes;
        const double weight = weights == nullptr ? 1 : static_cast<double>(weights[row]);
        if (at[row] == options.ignore_index || (weight == 0 && of_classes == nullptr)) {
          std::fill_n(out, classes, T{0});
          continue;
        }
        const T* from = r.in + i * classes;
        if (of_classes != nullptr) {
          // (1 - s) w (p - one-hot) + s / C (sum(v) p - v)
          const double sharper = (1 - options.label_smoothing) * weight;
          const T factor = static_cast<T>(common * (sharper + share * all_classes));
          const T each = static_cast<T>(common * share);
          if (log_sums != nullptr)
            exp_row(from, log_sums[row], factor, T{0}, out, classes);
          else
            for (int64_t c = 0; c < classes; ++c) out[c] = factor * from[c];
          for (int64_t c = 0; c < classes; ++c) out[c] -= each * of_classes[c];
          out[at[row]] -= static_cast<T>(common * sharper);
          continue;
        }
        const T factor = static_cast<T>(common * weight);
        if (log_sums != nullptr)
          exp_row(from, log_sums[row], factor, even, out, classes);
        else
          for (int64_t c = 0; c < classes; ++c) out[c] = factor * (from[c] - even);
        out[at[row]] -= factor * sharp;
      }
    };
    with_rows(logits, {&logits}, {&dx}, rows_at_once(kExponentialGrain, classes),
              [&]<class U>(const Rows<U>& r) {
                if constexpr (std::is_same_v<T, U>) gradients_of(r);
              });
  });
}

void cross_entropy_probabilities_kernel(Cpu, const Tensor& logits, const Tensor& lse,
                                        const Tensor& y) {
  const int64_t classes = logits.size(1);
  with_rows(logits, {&logits}, {&y}, rows_at_once(kExponentialGrain, classes),
            [&]<class T>(const Rows<T>& r) {
              for (int64_t i = 0; i < r.rows; ++i)
                exp_row(r.in + i * classes, lse.data<T>()[r.first + i], T{1}, T{0},
                        r.out + i * classes, classes);
            });
}

Tensor cross_entropy_probabilities(const Tensor& logits, const Tensor& lse, bool overwrite) {
  check_real("cross_entropy", "logits", logits);
  const Tensor x = as_matrix(logits);
  check_shape("cross_entropy", "lse", lse, {x.size(0)});
  check_beside("cross_entropy", logits, {&lse});
  const Tensor y = output_like("cross_entropy_probabilities", logits, overwrite);
  const Tensor sums = contiguous(lse), to = y.view(x.shape());
  dispatch(logits.device(),
           [&](auto backend) { cross_entropy_probabilities_kernel(backend, x, sums, to); });
  if (overwrite) y.bump_version();
  return y;
}

CrossEntropyResult cross_entropy(const Tensor& logits, const Tensor& target,
                                 const CrossEntropyOptions& options, const EntropyWeights& weights,
                                 bool with_top) {
  check_cross_entropy("cross_entropy", logits, target, weights, options);
  const Device device = logits.device();
  CrossEntropyResult result{
      Tensor::empty({}, dtype_beside(logits), device),
      Tensor::empty({target.numel()}, dtype_beside(logits), device),
      Tensor::empty({}, DType::i64, device), Tensor::empty({}, DType::i64, device),
      with_top ? Tensor::empty({target.numel()}, DType::i64, device) : Tensor()};
  const Tensor x = as_matrix(logits), at = as_vector(target);
  const EntropyWeights w = for_kernel(weights, at, options);
  dispatch(device, [&](auto backend) { cross_entropy_kernel(backend, x, at, result, options, w); });
  return result;
}

Tensor cross_entropy_backward(const Tensor& dy, const Tensor& logits, const Tensor& target,
                              const Tensor& lse, const CrossEntropyOptions& options,
                              const EntropyWeights& weights, bool overwrite) {
  check_cross_entropy("cross_entropy_backward", logits, target, weights, options);
  check_shape("cross_entropy_backward", "dy", dy, {});
  if (lse.defined()) check_shape("cross_entropy_backward", "lse", lse, {target.numel()});
  check_beside("cross_entropy_backward", logits, {&dy, &lse});
  const Tensor dx = output_like("cross_entropy_backward", logits, overwrite);
  const Tensor x = as_matrix(logits), at = as_vector(target);
  const Tensor sums = contiguous_or_none(lse), to = dx.view(x.shape());
  const EntropyWeights w = for_kernel(weights, at, options);
  dispatch(logits.device(), [&](auto backend) {
    cross_entropy_backward_kernel(backend, dy, x, at, sums, to, options, w);
  });
  if (overwrite) dx.bump_version();
  return dx;
}

int64_t count_correct(const Tensor& logits, const Tensor& target) {
  check_cross_entropy("count_correct", logits, target, {}, {});
  const CategoryScope scope(Category::workspace);
  if (logits.device().type == DeviceType::meta) return 0;
  const Tensor top = to_device(argmax(as_matrix(logits), 1), kCpu);
  const Tensor at = to_device(as_vector(target), kCpu);
  int64_t correct = 0;
  for (int64_t row = 0; row < at.numel(); ++row)
    correct += top.data<int64_t>()[row] == at.data<int64_t>()[row] ? 1 : 0;
  return correct;
}

}  // namespace frugal::ops
