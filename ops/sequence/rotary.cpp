#include "ops/sequence/rotary.h"

#include <cmath>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// Cosines and sines of every position, [T, 2, D/2]. Angles are f64, because positions may be large.
template <class T>
Tensor table_of(const Tensor& x, const Tensor& positions, double base, bool inverse) {
  const int64_t steps = x.size(1), half = x.size(3) / 2;
  CategoryScope scope(Category::workspace);
  const Tensor table = Tensor::empty({steps, 2, half}, x.dtype());
  for (int64_t t = 0; t < steps; ++t) {
    const int64_t at = positions.defined() ? positions.data<int64_t>()[t] : t;
    T* row = table.mut<T>() + t * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(at) *
                           std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
      row[i] = static_cast<T>(std::cos(angle));
      row[half + i] = static_cast<T>(inverse ? -std::sin(angle) : std::sin(angle));
    }
  }
  return table;
}

}  // namespace

void rotary_kernel(Cpu, const Tensor& x, const Tensor& positions, double base, bool inverse,
                   const Tensor& y) {
  const int64_t steps = x.size(1), heads = x.size(2), d = x.size(3), half = d / 2;
  if (x.numel() == 0) return;
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Tensor table = table_of<T>(x, positions, base, inverse);
    const T* angles = table.data<T>();
    const T* from = x.data<T>();
    T* to = y.mut<T>();
    parallel_for(0, x.size(0) * steps, rows_at_once(kArithmeticGrain, heads * d),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin * heads; i < end * heads; ++i) {
                     const T *c = angles + i / heads % steps * d, *s = c + half;
                     const T *a = from + i * d, *b = a + half;
                     T *p = to + i * d, *q = p + half;
                     for (int64_t k = 0; k < half; ++k) {
                       const T first = a[k] * c[k] - b[k] * s[k];
                       q[k] = b[k] * c[k] + a[k] * s[k];
                       p[k] = first;
                     }
                   }
                 });
  });
}

Tensor rotary(const Tensor& x, const Tensor& positions, double base, bool inverse) {
  check_dim("rotary", "x", x, 4);
  check_real("rotary", "x", x);
  FRUGAL_CHECK(x.size(3) % 2 == 0, "[rotary] expected an even number of channels a head, got x {}",
               x.shape());
  FRUGAL_CHECK(base > 0, "[rotary] expected base above 0, got {}", base);
  if (positions.defined()) {
    check_shape("rotary", "positions", positions, {x.size(1)});
    FRUGAL_CHECK(positions.dtype() == DType::i64 && positions.device() == x.device(),
                 "[rotary] expected positions of dtype i64 on {}, got {}", x.device().str(),
                 describe(positions));
  }
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const Tensor in = contiguous(x), at = contiguous_or_none(positions);
  dispatch(x.device(), [&](auto backend) { rotary_kernel(backend, in, at, base, inverse, y); });
  return y;
}

}  // namespace frugal::ops
