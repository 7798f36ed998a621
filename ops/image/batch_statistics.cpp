#include "ops/image/batch_statistics.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace frugal::ops {
namespace {

thread_local const GatherRows* active = nullptr;

Tensor on_host(const Tensor& x) { return to_device(x, kCpu); }

void copy_back(const Tensor& to, const Tensor& from) {
  copy_bytes(to.raw(), to.device(), from.raw(), kCpu, to.nbytes());
}

// Row i of what all processes have: the number of rows, and then `columns` numbers.
Tensor gather(int64_t rows, std::initializer_list<const Tensor*> columns) {
  int64_t width = 1;
  for (const Tensor* values : columns) width += values->numel();
  const Tensor row = Tensor::empty({width}, DType::f64);
  double* to = row.mut<double>();
  *to++ = static_cast<double>(rows);
  for (const Tensor* values : columns) {
    const Tensor here = on_host(*values);
    to = std::copy_n(here.data<double>(), here.numel(), to);
  }
  const Tensor all = (*active)(row);
  FRUGAL_CHECK(all.dim() == 2 && all.size(1) == width && all.dtype() == DType::f64,
               "[batch_norm] expected the statistics of all processes, [..., {}] f64, got {}",
               width, describe(all));
  return all;
}

}  // namespace

SharedStatistics::SharedStatistics(GatherRows gather)
    : gather_(std::move(gather)), previous_(std::exchange(active, &gather_)) {}

SharedStatistics::~SharedStatistics() { active = previous_; }

bool shares_statistics(Device device) { return active != nullptr && device != kMeta; }

int64_t share_moments(const Tensor& mean, const Tensor& variance, int64_t rows) {
  const CategoryScope scope(Category::workspace);
  const int64_t c = mean.numel();
  const Tensor all = gather(rows, {&mean, &variance});
  const Tensor means = Tensor::zeros({c}, DType::f64), variances = Tensor::zeros({c}, DType::f64);
  auto *const m = means.mut<double>(), *const v = variances.mut<double>();
  double seen = 0;
  for (int64_t p = 0; p < all.size(0); ++p) {
    const double* row = all.data<double>() + p * all.size(1);
    const double n = row[0];
    if (n == 0) continue;  // a process without rows has no mean
    const double share = n / (seen + n);
    for (int64_t k = 0; k < c; ++k) {
      const double delta = row[1 + k] - m[k];
      m[k] += delta * share;
      // v is the sum of squares around the mean.
      v[k] += row[1 + c + k] * n + delta * delta * seen * share;
    }
    seen += n;
  }
  for (int64_t k = 0; k < c; ++k) v[k] /= seen;
  copy_back(mean, means);
  copy_back(variance, variances);
  return static_cast<int64_t>(seen);
}

int64_t share_sums(const Tensor& sums, int64_t rows) {
  const CategoryScope scope(Category::workspace);
  const Tensor all = gather(rows, {&sums});
  const Tensor total = Tensor::zeros({sums.numel()}, DType::f64);
  double seen = 0;
  for (int64_t p = 0; p < all.size(0); ++p) {
    const double* row = all.data<double>() + p * all.size(1);
    seen += row[0];
    if (row[0] == 0) continue;
    for (int64_t k = 0; k < total.numel(); ++k) total.mut<double>()[k] += row[1 + k];
  }
  copy_back(sums, total);
  return static_cast<int64_t>(seen);
}

}  // namespace frugal::ops
