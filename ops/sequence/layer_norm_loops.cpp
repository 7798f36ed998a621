#include "ops/sequence/layer_norm_loops.h"

#include <cmath>

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sequence/layer_norm_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Wide = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;

// Calls f(d, k) over whole vectors, then over single elements.
template <class F>
HWY_INLINE void for_columns(int64_t n, F f) {
  const Wide wide;
  const One one;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  int64_t k = 0;
  for (; k + step <= n; k += step) f(wide, k);
  for (; k < n; ++k) f(one, k);
}

// The sum of f(d, k) over the columns of a row.
template <class F>
HWY_INLINE float row_sum(int64_t n, F f) {
  const Wide wide;
  const One one;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  auto a = hn::Zero(wide), b = hn::Zero(wide);
  int64_t k = 0;
  for (; k + 2 * step <= n; k += 2 * step) {
    a = hn::Add(a, f(wide, k));
    b = hn::Add(b, f(wide, k + step));
  }
  for (; k + step <= n; k += step) a = hn::Add(a, f(wide, k));
  float sum = hn::GetLane(hn::SumOfLanes(wide, hn::Add(a, b)));
  for (; k < n; ++k) sum += hn::GetLane(f(one, k));
  return sum;
}

struct Spread {
  float sum, squares;
};

// The sums of d and of d^2 over the columns of a row, with d = x - centre.
HWY_INLINE Spread row_spread(const float* x, int64_t n, float centre) {
  const Wide wide;
  const One one;
  const auto step = static_cast<int64_t>(hn::Lanes(wide));
  const auto middle = hn::Set(wide, centre);
  auto sum_a = hn::Zero(wide), sum_b = sum_a, squares_a = sum_a, squares_b = sum_a;
  int64_t k = 0;
  for (; k + 2 * step <= n; k += 2 * step) {
    const auto a = hn::Sub(hn::LoadU(wide, x + k), middle);
    const auto b = hn::Sub(hn::LoadU(wide, x + k + step), middle);
    sum_a = hn::Add(sum_a, a);
    sum_b = hn::Add(sum_b, b);
    squares_a = hn::MulAdd(a, a, squares_a);
    squares_b = hn::MulAdd(b, b, squares_b);
  }
  for (; k + step <= n; k += step) {
    const auto a = hn::Sub(hn::LoadU(wide, x + k), middle);
    sum_a = hn::Add(sum_a, a);
    squares_a = hn::MulAdd(a, a, squares_a);
  }
  Spread all{hn::GetLane(hn::SumOfLanes(wide, hn::Add(sum_a, sum_b))),
             hn::GetLane(hn::SumOfLanes(wide, hn::Add(squares_a, squares_b)))};
  for (; k < n; ++k) {
    const float d = hn::GetLane(hn::Sub(hn::LoadU(one, x + k), hn::Set(one, centre)));
    all.sum += d;
    all.squares += d * d;
  }
  return all;
}

// The forward pass and the rebuild share this expression, so that both give the same bits.
template <bool kWeight, bool kBias>
HWY_INLINE void write_row(const float* x, const RowNorm& norm, float mean, float invstd, float* y) {
  for_columns(norm.width, [&](auto d, int64_t k) HWY_ATTR {
    auto v = hn::Mul(hn::Sub(hn::LoadU(d, x + k), hn::Set(d, mean)), hn::Set(d, invstd));
    if constexpr (kWeight && kBias)
      v = hn::MulAdd(v, hn::LoadU(d, norm.weight + k), hn::LoadU(d, norm.bias + k));
    else if constexpr (kWeight)
      v = hn::Mul(v, hn::LoadU(d, norm.weight + k));
    else if constexpr (kBias)
      v = hn::Add(v, hn::LoadU(d, norm.bias + k));
    hn::StoreU(v, d, y + k);
  });
}

HWY_INLINE void WriteRow(const float* x, const RowNorm& norm, float mean, float invstd, float* y) {
  if (norm.weight != nullptr)
    norm.bias != nullptr ? write_row<true, true>(x, norm, mean, invstd, y)
                         : write_row<true, false>(x, norm, mean, invstd, y);
  else
    norm.bias != nullptr ? write_row<false, true>(x, norm, mean, invstd, y)
                         : write_row<false, false>(x, norm, mean, invstd, y);
}

void NormalizeRows(const float* x, const RowNorm& norm, double eps, float* y) {
  const auto width = static_cast<double>(norm.width);
  for (int64_t row = 0; row < norm.rows; ++row, x += norm.width, y += norm.width) {
    float mean = 0;
    double variance = 0;
    if (norm.mean != nullptr) {
      const float sum =
          row_sum(norm.width, [&](auto d, int64_t k) HWY_ATTR { return hn::LoadU(d, x + k); });
      const auto about = static_cast<float>(static_cast<double>(sum) / width);
      // A sum of large values misses by some ulps, which 1 / sqrt(eps) would make visible in a row
      // of small variance. The differences to what it gave are small, so their mean mends it.
      const Spread spread = row_spread(x, norm.width, about);
      const double off = static_cast<double>(spread.sum) / width;
      norm.mean[row] = mean = static_cast<float>(static_cast<double>(about) + off);
      variance = static_cast<double>(spread.squares) / width - off * off;
      if (variance < 0) variance = 0;  // NaN stays NaN
    } else {
      variance = static_cast<double>(row_sum(norm.width,
                                             [&](auto d, int64_t k) HWY_ATTR {
                                               const auto v = hn::LoadU(d, x + k);
                                               return hn::Mul(v, v);
                                             })) /
                 width;
    }
    norm.invstd[row] = static_cast<float>(1 / std::sqrt(variance + eps));
    WriteRow(x, norm, mean, norm.invstd[row], y);
  }
}

void ApplyRowNorm(const float* x, const RowNorm& norm, float* y) {
  for (int64_t row = 0; row < norm.rows; ++row)
    WriteRow(x + row * norm.width, norm, norm.mean != nullptr ? norm.mean[row] : 0,
             norm.invstd[row], y + row * norm.width);
}

template <class D>
HWY_INLINE auto weighted(D d, hn::Vec<D> v, const float* weight, int64_t k) {
  return weight != nullptr ? hn::Mul(v, hn::LoadU(d, weight + k)) : v;
}

// kRows rows at once, so that the sums over rows are loaded and stored once for all of them.
template <int kRows, bool kSums>
HWY_INLINE void gradients_of(const float* dy, const float* x, const RowNorm& norm, int64_t row,
                             float* dx, float* dweight, float* dbias) {
  const int64_t n = norm.width;
  const float* weight = norm.weight;
  float mean[kRows], invstd[kRows], scale[kRows], sum[kRows], product[kRows];
  for (int r = 0; r < kRows; ++r) {
    mean[r] = norm.mean != nullptr ? norm.mean[row + r] : 0;
    invstd[r] = norm.invstd[row + r];
    scale[r] = norm.scale != nullptr ? norm.scale[row + r] : invstd[r];
  }
  if constexpr (kSums)
    for_columns(n, [&](auto d, int64_t k) HWY_ATTR {
      auto of_weight = hn::LoadU(d, dweight + k), of_bias = hn::LoadU(d, dbias + k);
      for (int r = 0; r < kRows; ++r) {
        const auto g = hn::LoadU(d, dy + r * n + k);
        const auto v = hn::Sub(hn::LoadU(d, x + r * n + k), hn::Set(d, mean[r]));
        of_weight = hn::MulAdd(hn::Mul(v, hn::Set(d, invstd[r])), g, of_weight);
        of_bias = hn::Add(of_bias, g);
      }
      hn::StoreU(of_weight, d, dweight + k);
      hn::StoreU(of_bias, d, dbias + k);
    });
  if (dx == nullptr) return;
  for (int r = 0; r < kRows; ++r) {
    const float *g = dy + r * n, *v = x + r * n;
    sum[r] = norm.mean == nullptr ? 0 : row_sum(n, [&](auto d, int64_t k) HWY_ATTR {
      return weighted(d, hn::LoadU(d, g + k), weight, k);
    });
    product[r] = row_sum(n, [&](auto d, int64_t k) HWY_ATTR {
      return hn::Mul(weighted(d, hn::LoadU(d, g + k), weight, k),
                     hn::Sub(hn::LoadU(d, v + k), hn::Set(d, mean[r])));
    });
    // dx = scale (g - sum / n - (x - mean) invstd^2 product / n)
    const auto width = static_cast<float>(n);
    const float shift = scale[r] * sum[r] / width;
    const float slope = scale[r] * invstd[r] * invstd[r] * product[r] / width;
    for_columns(n, [&](auto d, int64_t k) HWY_ATTR {
      const auto centred = hn::Sub(hn::LoadU(d, v + k), hn::Set(d, mean[r]));
      const auto own = weighted(d, weighted(d, hn::LoadU(d, g + k), weight, k), norm.gain, k);
      const auto part = hn::MulAdd(own, hn::Set(d, scale[r]), hn::Set(d, -shift));
      hn::StoreU(hn::NegMulAdd(centred, hn::Set(d, slope), part), d, dx + r * n + k);
    });
  }
}

template <bool kSums>
HWY_INLINE void gradients_with(const float* dy, const float* x, const RowNorm& norm, float* dx,
                               float* dweight, float* dbias) {
  int64_t row = 0;
  const auto at = [&](float* to) { return to != nullptr ? to + row * norm.width : nullptr; };
  for (; row + 4 <= norm.rows; row += 4)
    gradients_of<4, kSums>(dy + row * norm.width, x + row * norm.width, norm, row, at(dx), dweight,
                           dbias);
  for (; row < norm.rows; ++row)
    gradients_of<1, kSums>(dy + row * norm.width, x + row * norm.width, norm, row, at(dx), dweight,
                           dbias);
}

void RowNormGradients(const float* dy, const float* x, const RowNorm& norm, float* dx,
                      float* dweight, float* dbias) {
  dweight != nullptr ? gradients_with<true>(dy, x, norm, dx, dweight, dbias)
                     : gradients_with<false>(dy, x, norm, dx, nullptr, nullptr);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(NormalizeRows);
HWY_EXPORT(ApplyRowNorm);
HWY_EXPORT(RowNormGradients);

void normalize_rows(const float* x, const RowNorm& norm, double eps, float* y) {
  HWY_DYNAMIC_DISPATCH(NormalizeRows)(x, norm, eps, y);
}
void apply_row_norm(const float* x, const RowNorm& norm, float* y) {
  HWY_DYNAMIC_DISPATCH(ApplyRowNorm)(x, norm, y);
}
void row_norm_gradients(const float* dy, const float* x, const RowNorm& norm, float* dx,
                        float* dweight, float* dbias) {
  HWY_DYNAMIC_DISPATCH(RowNormGradients)(dy, x, norm, dx, dweight, dbias);
}

}  // namespace frugal::ops::simd
#endif
