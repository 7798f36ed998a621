#include "ops/optimizer/adafactor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/optimizer/sgd.h"
#include "ops/optimizer/trained.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

double square(double x) { return x * x; }

// Updates r and c from the squares of the gradient. One thread adds each of them, in order.
template <class T>
void average_squares(const T* g, T* r, T* c, int64_t rows, int64_t cols, double beta,
                     double floor) {
  parallel_for(0, rows, rows_at_once(kArithmeticGrain, cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < cols; ++j) sum += square(static_cast<double>(g[i * cols + j]));
      const double mean = sum / static_cast<double>(cols) + floor;
      r[i] = static_cast<T>(beta * static_cast<double>(r[i]) + (1 - beta) * mean);
    }
  });
  constexpr int64_t kColumns = 64;  // that a thread takes at once
  parallel_for(0, (cols + kColumns - 1) / kColumns, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kColumns, width = std::min(kColumns, cols - first);
      std::vector<double> sums(static_cast<size_t>(width));
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < width; ++j)
          sums[static_cast<size_t>(j)] += square(static_cast<double>(g[i * cols + first + j]));
      for (int64_t j = 0; j < width; ++j) {
        T& at = c[first + j];
        const double mean = sums[static_cast<size_t>(j)] / static_cast<double>(rows) + floor;
        at = static_cast<T>(beta * static_cast<double>(at) + (1 - beta) * mean);
      }
    }
  });
}

// to[i] = 1 / sqrt(x[i] / mean).
template <class T>
std::vector<T> inverse_roots(const T* x, int64_t n, double mean) {
  std::vector<T> roots(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    roots[static_cast<size_t>(i)] = static_cast<T>(std::sqrt(mean / static_cast<double>(x[i])));
  return roots;
}

// The direction of element (i, j) is g of_row[i] of_column[j]. Updates the whole parameter.
template <class T>
void step_along(T* p, const T* g, const std::vector<T>& of_row, const std::vector<T>& of_column,
                double scale, const AdafactorStep& step) {
  const auto rows = static_cast<int64_t>(of_row.size());
  const auto cols = static_cast<int64_t>(of_column.size());
  std::vector<double> squares(of_row.size());
  parallel_for(0, rows, rows_at_once(kArithmeticGrain, cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < cols; ++j)
        sum += square(static_cast<double>(g[i * cols + j] * of_column[static_cast<size_t>(j)]));
      squares[static_cast<size_t>(i)] =
          sum * square(static_cast<double>(of_row[static_cast<size_t>(i)]));
    }
  });
  double sum = 0;
  for (const double row : squares) sum += row;
  const double rms = std::sqrt(sum / static_cast<double>(rows * cols));
  const double rate = step.lr * scale / std::max(1.0, rms / step.clip);
  const T keep = static_cast<T>(1 - step.lr * step.weight_decay);
  parallel_for(0, rows, rows_at_once(kArithmeticGrain, cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T factor = static_cast<T>(rate * static_cast<double>(of_row[static_cast<size_t>(i)]));
      for (int64_t j = 0; j < cols; ++j)
        p[i * cols + j] =
            keep * p[i * cols + j] - factor * g[i * cols + j] * of_column[static_cast<size_t>(j)];
    }
  });
}

void adafactor_update(const AdafactorUpdate& all) {
  // Not a structured binding: Clang 16 captures none in a parallel loop.
  const auto& parameter = all.parameter;
  const auto& gradient = all.gradient;
  const auto& r = all.r;
  const auto& c = all.c;
  const auto& step = all.step;
  const int64_t n = parameter.numel();
  if (n == 0) return;
  double squares = 0;
  sum_of_squares_kernel(Cpu{}, parameter, squares);
  const double size = std::sqrt(squares / static_cast<double>(n));
  double scale = 1;
  // NaN must stay NaN, and std::max would ignore it.
  if (step.scale_parameter) scale = std::isnan(size) ? size : std::max(step.least_scale, size);
  const double beta = 1 - std::pow(static_cast<double>(step.step), -step.decay_rate);
  with_real(parameter.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* p = parameter.mut<T>();
    const T* g = gradient.data<T>();
    T* columns = c.mut<T>();
    if (!r.defined()) {
      parallel_for(0, n, kArithmeticGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          columns[i] =
              static_cast<T>(beta * static_cast<double>(columns[i]) +
                             (1 - beta) * (square(static_cast<double>(g[i])) + step.floor));
      });
      step_along(p, g, std::vector<T>{1}, inverse_roots(columns, n, 1), scale, step);
      return;
    }
    const int64_t rows = r.numel(), cols = c.numel();
    average_squares(g, r.mut<T>(), columns, rows, cols, beta, step.floor);
    double mean = 0;
    for (int64_t i = 0; i < rows; ++i)
      mean += static_cast<double>(r.data<T>()[i]) / static_cast<double>(rows);
    step_along(p, g, inverse_roots(r.data<T>(), rows, mean), inverse_roots(columns, cols, 1), scale,
               step);
  });
}

void check_adafactor(const AdafactorUpdate& all, Device device) {
  const auto& parameter = all.parameter;
  const auto& gradient = all.gradient;
  const auto& r = all.r;
  const auto& c = all.c;
  const auto& step = all.step;
  check_trained("adafactor", parameter, device);
  check_shape("adafactor", "the gradient", gradient, parameter.shape());
  if (r.defined()) {
    FRUGAL_CHECK(parameter.dim() >= 2,
                 "[adafactor] expected a parameter with at least 2 axes for rows and columns, "
                 "got {}",
                 describe(parameter));
    const int64_t rows = parameter.size(0);
    check_shape("adafactor", "the rows", r, {rows});
    check_shape("adafactor", "the columns", c, {parameter.numel() / std::max<int64_t>(rows, 1)});
  } else {
    check_shape("adafactor", "the second moment", c, parameter.shape());
  }
  check_same("adafactor", parameter, {&gradient, &r, &c});
  FRUGAL_CHECK(step.step >= 1, "[adafactor] expected a step of at least 1, got {}", step.step);
}

}  // namespace

void adafactor_steps_kernel(Cpu, const std::vector<AdafactorUpdate>& updates) {
  for (const AdafactorUpdate& u : updates) adafactor_update(u);
}

void adafactor_steps(const std::vector<AdafactorUpdate>& updates) {
  if (updates.empty()) return;
  const Device device = updates.front().parameter.device();
  std::vector<AdafactorUpdate> dense = updates;
  for (AdafactorUpdate& u : dense) {
    check_adafactor(u, device);
    u.gradient = contiguous(u.gradient);
  }
  dispatch(device, [&](auto backend) { adafactor_steps_kernel(backend, dense); });
  for (const AdafactorUpdate& u : dense)
    for (const Tensor* written : {&u.parameter, &u.r, &u.c})
      if (written->defined()) written->bump_version();
}

}  // namespace frugal::ops
