#include "ops/dense/row_product.h"

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense/row_product.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Each sum has four partial sums, whatever rows are taken together.
HWY_ATTR float RowDot(const float* x, const float* w, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t k = 0;
  for (; k + 4 * step <= n; k += 4 * step) {
    a = hn::MulAdd(hn::LoadU(d, x + k), hn::LoadU(d, w + k), a);
    b = hn::MulAdd(hn::LoadU(d, x + k + step), hn::LoadU(d, w + k + step), b);
    c = hn::MulAdd(hn::LoadU(d, x + k + 2 * step), hn::LoadU(d, w + k + 2 * step), c);
    e = hn::MulAdd(hn::LoadU(d, x + k + 3 * step), hn::LoadU(d, w + k + 3 * step), e);
  }
  for (; k + step <= n; k += step) a = hn::MulAdd(hn::LoadU(d, x + k), hn::LoadU(d, w + k), a);
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; k < n; ++k) sum += x[k] * w[k];
  return sum;
}

HWY_ATTR void RowProducts(const float* x, const float* w, const float* bias, int64_t rows,
                          int64_t n, float* to) {
  for (int64_t i = 0; i < rows; ++i)
    to[i] = RowDot(x, w + i * n, n) + (bias != nullptr ? bias[i] : 0.0f);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(RowProducts);

void row_products(const float* x, const float* w, const float* bias, int64_t rows, int64_t n,
                  float* to) {
  HWY_DYNAMIC_DISPATCH(RowProducts)(x, w, bias, rows, n, to);
}

}  // namespace frugal::ops::simd
#endif
