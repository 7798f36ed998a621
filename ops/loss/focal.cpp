#include "ops/loss/focal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/loss/targets.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// The loss of a row without its weight. `gradient` becomes that of the row's loss, times `factor`.
template <class T>
double focal_row(const T* x, int64_t classes, int64_t right, double gamma, double factor,
                 T* gradient) {
  const auto top = static_cast<double>(*std::max_element(x, x + classes));
  double total = 0, others = 0;  // others leaves out the right class: 1 - p keeps its digits
  for (int64_t c = 0; c < classes; ++c) {
    const double term = std::exp(static_cast<double>(x[c]) - top);
    total += term;
    if (c != right) others += term;
  }
  const double log_sum = top + std::log(total), log_p = static_cast<double>(x[right]) - log_sum;
  const double p = std::exp(log_p), rest = others / total;
  const double power = std::pow(rest, gamma);
  // d(loss)/dx_c = slope (1[c is right] - p_c)
  const double steep = gamma == 0 || rest == 0 ? 0 : gamma * power / rest * p * log_p;
  const double slope = steep - power;
  for (int64_t c = 0; c < classes; ++c) {
    const double probability = std::exp(static_cast<double>(x[c]) - log_sum);
    gradient[c] = static_cast<T>(factor * slope * (c == right ? rest : -probability));
  }
  return power == 0 ? 0 : -power * log_p;
}

}  // namespace

void focal_cross_entropy_kernel(Cpu, const Tensor& logits, const Tensor& target,
                                const FocalResult& result, const FocalOptions& options,
                                const Tensor& class_weights) {
  const int64_t rows = logits.size(0), classes = logits.size(1);
  const int64_t* at = target.data<int64_t>();
  double counted = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (at[row] == options.ignore_index) continue;
    counted += 1;
    FRUGAL_CHECK(at[row] >= 0 && at[row] < classes,
                 "[focal_cross_entropy] expected targets in [0, {}) or the ignored index {}, got "
                 "{} in row {}",
                 classes, options.ignore_index, at[row], row);
  }
  const double divisor = options.sum ? 1 : counted;
  const int64_t chunks = (rows + kLossRows - 1) / kLossRows;
  std::vector<double> partial(static_cast<size_t>(chunks));
  with_real(result.loss.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* weights = data_or_null<T>(class_weights);
    for_real_rows(
        rows, classes, kLossRows, rows_at_once(kExponentialGrain, classes), {&logits},
        {&result.gradient}, [&](const auto& in, const auto& out, int64_t first, int64_t count) {
          double& loss = partial[static_cast<size_t>(first / kLossRows)];
          for (int64_t row = 0; row < count; ++row) {
            const int64_t from = row * classes, right = at[first + row];
            const bool counts = right != options.ignore_index;
            const double weight = !counts              ? 0
                                  : weights == nullptr ? 1
                                                       : static_cast<double>(weights[right]);
            if (weight == 0)  // 0 times an infinite loss would be NaN
              std::fill_n(out[0] + from, classes, 0);
            else
              loss += weight * focal_row(in[0] + from, classes, right, options.gamma,
                                         weight / divisor, out[0] + from);
          }
        });
    double loss = 0;
    for (const double part : partial) loss += part;
    *result.loss.mut<T>() = static_cast<T>(loss / divisor);
  });
}

FocalResult focal_cross_entropy(const Tensor& logits, const Tensor& target,
                                const FocalOptions& options, const Tensor& class_weights) {
  const char* const op = "focal_cross_entropy";
  check_targets(op, logits, target);
  if (class_weights.defined()) check_shape(op, "class_weights", class_weights, {logits.size(-1)});
  check_beside(op, logits, {&class_weights});
  FRUGAL_CHECK(options.gamma >= 0 && options.gamma < std::numeric_limits<double>::infinity(),
               "[{}] expected gamma of at least 0, got {}", op, options.gamma);
  const DType dtype = dtype_beside(logits);
  FocalResult result{Tensor::empty({}, dtype, logits.device()),
                     Tensor::empty(logits.shape(), logits.dtype(), logits.device())};
  const int64_t classes = logits.size(-1);
  const Shape matrix{logits.numel() / classes, classes};
  const Tensor x = contiguous(logits).view(matrix), at = contiguous(target).view({matrix[0]});
  const Tensor weights = contiguous_or_none(class_weights);
  const FocalResult flat{result.loss, result.gradient.view(matrix)};
  dispatch(logits.device(), [&](auto backend) {
    focal_cross_entropy_kernel(backend, x, at, flat, options, weights);
  });
  return result;
}

}  // namespace frugal::ops
