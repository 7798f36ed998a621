#include "ops/sequence/attention_loops.h"

#include <algorithm>
#include <limits>

#include "core/vector_targets.h"
#include "ops/simd/scalar_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/sequence/attention_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// Products keep a block of c in registers. Elementwise work is plain loops, which the compiler
// vectorises for the target of each pass.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Wide = hn::ScalableTag<float>;

// Rows of a block: with two vectors for each row they fill half of the registers.
constexpr int kBlockRows = HWY_MAX_BYTES >= 64 || HWY_ARCH_ARM_A64 ? 8 : 4;

// kRows rows by kVectors vectors of c.
template <int kRows, int kVectors>
HWY_INLINE void block_product(Strided a, const float* HWY_RESTRICT b, int64_t b_stride,
                              float* HWY_RESTRICT c, int64_t c_stride, int64_t k, bool accumulate) {
  const Wide d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<Wide> sum[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v)
      sum[r][v] = accumulate ? hn::LoadU(d, c + r * c_stride + v * lanes) : hn::Zero(d);
  for (int64_t i = 0; i < k; ++i) {
    hn::Vec<Wide> right[kVectors];
    for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + i * b_stride + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const auto left = hn::Set(d, a.data[r * a.row + i * a.col]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(left, right[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, c + r * c_stride + v * lanes);
}

template <int kVectors>
HWY_INLINE void column_product(Strided a, const float* b, int64_t b_stride, float* c,
                               int64_t c_stride, int64_t m, int64_t k, bool accumulate) {
  int64_t i = 0;
  for (; i + kBlockRows <= m; i += kBlockRows)
    block_product<kBlockRows, kVectors>({a.data + i * a.row, a.row, a.col}, b, b_stride,
                                        c + i * c_stride, c_stride, k, accumulate);
  for (; i < m; ++i)
    block_product<1, kVectors>({a.data + i * a.row, a.row, a.col}, b, b_stride, c + i * c_stride,
                               c_stride, k, accumulate);
}

void TileProduct(Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride, int64_t m,
                 int64_t n, int64_t k, bool accumulate) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Wide()));
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes)
    column_product<2>(a, b + j, b_stride, c + j, c_stride, m, k, accumulate);
  for (; j < n; j += lanes)
    column_product<1>(a, b + j, b_stride, c + j, c_stride, m, k, accumulate);
}

HWY_ATTR void TileAdd(Tile x, const float* y, int64_t y_stride) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* HWY_RESTRICT to = x.data + r * x.stride;
    const float* HWY_RESTRICT from = y + r * y_stride;
    for (int64_t i = 0; i < x.cols; ++i) to[i] += from[i];
  }
}

// Combines f(d, i) over [0, n) with `join`: whole vectors first, then single elements.
template <class F, class Join>
HWY_INLINE auto reduce(int64_t n, float start, F f, Join join) {
  const Wide wide;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  auto a = hn::Set(wide, start), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = join(a, f(wide, i));
    b = join(b, f(wide, i + lanes));
  }
  for (; i + lanes <= n; i += lanes) a = join(a, f(wide, i));
  auto rest = hn::Set(one, start);
  for (; i < n; ++i) rest = join(rest, f(one, i));
  struct Parts {
    hn::Vec<Wide> vector;
    float rest;
  };
  return Parts{join(a, b), hn::GetLane(rest)};
}

// May ignore NaN: the exponentials carry it into the sum.
HWY_INLINE float row_max(const float* x, int64_t n) {
  const auto parts = reduce(
      n, -std::numeric_limits<float>::infinity(),
      [x](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, x + i); },
      [](auto p, auto q) HWY_ATTR { return hn::IfThenElse(hn::Gt(q, p), q, p); });
  return std::max(hn::GetLane(hn::MaxOfLanes(Wide(), parts.vector)), parts.rest);
}

template <class F>
HWY_INLINE float row_sum(int64_t n, F f) {
  const auto parts = reduce(n, 0, f, [](auto p, auto q) HWY_ATTR { return hn::Add(p, q); });
  return hn::GetLane(hn::SumOfLanes(Wide(), parts.vector)) + parts.rest;
}

// x = e^(x - shift). REQUIRES: no x - shift is above 0.
HWY_ATTR inline void exp_row(float* x, float shift, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = math::exp_or_0(x[i] - shift);
}

float Dot(const float* x, const float* y, int64_t n) {
  return row_sum(n, [x, y](auto d, int64_t i)
                        HWY_ATTR { return hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)); });
}

HWY_ATTR void TileOnlineSoftmax(Tile x, float* top, float* total, float* rescale) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    const float most = std::max(top[r], row_max(row, x.cols));
    // All scores so far are hidden. Nothing has to be scaled, and with any finite shift e^-inf is
    // 0.
    const float shift = most == kNone ? 0 : most;
    exp_row(row, shift, x.cols);
    rescale[r] = top[r] == kNone ? 0 : math::exp(top[r] - shift);
    total[r] = total[r] * rescale[r] +
               row_sum(x.cols, [row](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, row + i); });
    top[r] = most;
  }
}

HWY_ATTR void TileSoftmax(Tile x, const float* dp, float* delta) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  for (int64_t r = 0; r < x.rows; ++r) {
    float* row = x.data + r * x.stride;
    const float most = row_max(row, x.cols);
    exp_row(row, most == kNone ? 0 : most, x.cols);
    const float total =
        row_sum(x.cols, [row](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, row + i); });
    const float by = total == 0 ? 0 : 1 / total;
    for (int64_t i = 0; i < x.cols; ++i) row[i] *= by;
    delta[r] = Dot(row, dp + r * x.stride, x.cols);
  }
}

HWY_ATTR void TileSoftCap(Tile x, float cap, float* slopes) {
  const float by = 1 / cap;
  for (int64_t r = 0; r < x.rows; ++r) {
    float* HWY_RESTRICT row = x.data + r * x.stride;
    for (int64_t i = 0; i < x.cols; ++i) row[i] = math::tanh(row[i] * by);
    if (slopes != nullptr) {
      float* HWY_RESTRICT slope = slopes + r * x.stride;
      for (int64_t i = 0; i < x.cols; ++i) slope[i] = 1 - row[i] * row[i];
    }
    for (int64_t i = 0; i < x.cols; ++i) row[i] *= cap;
  }
}

HWY_ATTR void TileExp(Tile x, const float* shift) {
  for (int64_t r = 0; r < x.rows; ++r) exp_row(x.data + r * x.stride, shift[r], x.cols);
}

HWY_ATTR void TileScaleRows(Tile x, const float* factor) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* HWY_RESTRICT row = x.data + r * x.stride;
    const float by = factor[r];
    for (int64_t i = 0; i < x.cols; ++i) row[i] *= by;
  }
}

HWY_ATTR void TileMultiply(Tile x, const float* y) {
  for (int64_t r = 0; r < x.rows; ++r) {
    float* HWY_RESTRICT to = x.data + r * x.stride;
    const float* HWY_RESTRICT from = y + r * x.stride;
    for (int64_t i = 0; i < x.cols; ++i) to[i] *= from[i];
  }
}

HWY_ATTR void TileSoftmaxGradient(Tile dp, const float* p, const float* delta) {
  for (int64_t r = 0; r < dp.rows; ++r) {
    float* HWY_RESTRICT to = dp.data + r * dp.stride;
    const float* HWY_RESTRICT from = p + r * dp.stride;
    const float shift = delta[r];
    for (int64_t i = 0; i < dp.cols; ++i) to[i] = from[i] * (to[i] - shift);
  }
}

constexpr int64_t kLanes = 16;

// Takes 16 rows at a time, so that whole cache lines of y are written.
HWY_ATTR void TileTranspose(const float* HWY_RESTRICT x, int64_t stride, int64_t rows, int64_t cols,
                            float* HWY_RESTRICT y, int64_t y_stride) {
  int64_t r = 0;
  for (; r + kLanes <= rows; r += kLanes)
    for (int64_t k = 0; k < cols; ++k)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        y[k * y_stride + r + lane] = x[(r + lane) * stride + k];
  for (; r < rows; ++r)
    for (int64_t k = 0; k < cols; ++k) y[k * y_stride + r] = x[r * stride + k];
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(TileProduct);
HWY_EXPORT(TileAdd);
HWY_EXPORT(TileSoftCap);
HWY_EXPORT(TileOnlineSoftmax);
HWY_EXPORT(TileSoftmax);
HWY_EXPORT(TileExp);
HWY_EXPORT(TileScaleRows);
HWY_EXPORT(TileMultiply);
HWY_EXPORT(TileSoftmaxGradient);
HWY_EXPORT(Dot);
HWY_EXPORT(TileTranspose);

void tile_product(Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                  int64_t m, int64_t n, int64_t k, bool accumulate) {
  HWY_DYNAMIC_DISPATCH(TileProduct)(a, b, b_stride, c, c_stride, m, n, k, accumulate);
}
void tile_add(Tile x, const float* y, int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(TileAdd)(x, y, y_stride);
}
void tile_soft_cap(Tile x, float cap, float* slopes) {
  HWY_DYNAMIC_DISPATCH(TileSoftCap)(x, cap, slopes);
}
void tile_online_softmax(Tile x, float* top, float* total, float* rescale) {
  HWY_DYNAMIC_DISPATCH(TileOnlineSoftmax)(x, top, total, rescale);
}
void tile_softmax(Tile x, const float* dp, float* delta) {
  HWY_DYNAMIC_DISPATCH(TileSoftmax)(x, dp, delta);
}
void tile_exp(Tile x, const float* shift) { HWY_DYNAMIC_DISPATCH(TileExp)(x, shift); }
void tile_scale_rows(Tile x, const float* factor) {
  HWY_DYNAMIC_DISPATCH(TileScaleRows)(x, factor);
}
void tile_multiply(Tile x, const float* y) { HWY_DYNAMIC_DISPATCH(TileMultiply)(x, y); }
void tile_softmax_gradient(Tile dp, const float* p, const float* delta) {
  HWY_DYNAMIC_DISPATCH(TileSoftmaxGradient)(dp, p, delta);
}
float dot(const float* x, const float* y, int64_t n) { return HWY_DYNAMIC_DISPATCH(Dot)(x, y, n); }
void tile_transpose(const float* x, int64_t stride, int64_t rows, int64_t cols, float* y,
                    int64_t y_stride) {
  HWY_DYNAMIC_DISPATCH(TileTranspose)(x, stride, rows, cols, y, y_stride);
}

}  // namespace frugal::ops::simd
#endif
