#include "ops/dense/softmax_loops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/vector_targets.h"
#include "ops/simd/scalar_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense/softmax_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// Plain loops: the compiler vectorises them for the target of each pass. Reductions keep 16
// separate sums, so vectorising them needs no reordering of floating-point additions. The sums of
// blocks are added in f64.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

constexpr int64_t kLanes = 16;
constexpr int64_t kBlock = 256;

// Ignores NaN: the exponentials carry it into the sum.
HWY_ATTR inline float RowMax(const float* HWY_RESTRICT x, int64_t n) {
  float lanes[kLanes];
  for (float& lane : lanes) lane = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane)
      lanes[lane] = x[i + lane] > lanes[lane] ? x[i + lane] : lanes[lane];
  float top = lanes[0];
  for (const float lane : lanes) top = lane > top ? lane : top;
  for (; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

// The sum of f(i) for i in [0, n), n <= kBlock.
template <class F>
HWY_ATTR inline double BlockSum(int64_t n, F f) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  double total = 0;
  if (i > 0)
    for (const float lane : lanes) total += static_cast<double>(lane);
  for (; i < n; ++i) total += static_cast<double>(f(i));
  return total;
}

// Computes e^(x - top), stores it in y if y is not null, and returns the sum.
HWY_ATTR inline double ExpRow(const float* HWY_RESTRICT x, float top, float* HWY_RESTRICT y,
                              int64_t n) {
  float block[kBlock];
  double total = 0;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t width = std::min(kBlock, n - start);
    float* HWY_RESTRICT to = y != nullptr ? y + start : block;
    for (int64_t i = 0; i < width; ++i) to[i] = math::exp(x[start + i] - top);
    total += BlockSum(width, [to](int64_t i) HWY_ATTR { return to[i]; });
  }
  return total;
}

HWY_ATTR void SoftmaxRows(const float* x, float* y, int64_t rows, int64_t width, bool log) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* HWY_RESTRICT from = x + row * width;
    float* HWY_RESTRICT to = y + row * width;
    const float top = RowMax(from, width);
    const double total = ExpRow(from, top, log ? nullptr : to, width);
    if (log) {
      const float shift = static_cast<float>(std::log(total));
      for (int64_t i = 0; i < width; ++i) to[i] = from[i] - top - shift;
    } else {
      const float factor = static_cast<float>(1 / total);
      for (int64_t i = 0; i < width; ++i) to[i] *= factor;
    }
  }
}

HWY_ATTR void SoftmaxBackwardRows(const float* dy, const float* y, float* dx, int64_t rows,
                                  int64_t width, bool log) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* HWY_RESTRICT gradient = dy + row * width;
    const float* HWY_RESTRICT output = y + row * width;
    float* HWY_RESTRICT to = dx + row * width;
    double total = 0;
    for (int64_t start = 0; start < width; start += kBlock) {
      const float* g = gradient + start;
      const float* o = output + start;
      const int64_t n = std::min(kBlock, width - start);
      total += log ? BlockSum(n, [g](int64_t i) HWY_ATTR { return g[i]; })
                   : BlockSum(n, [g, o](int64_t i) HWY_ATTR { return g[i] * o[i]; });
    }
    const float shift = static_cast<float>(total);
    if (log) {
      for (int64_t i = 0; i < width; ++i) to[i] = gradient[i] - math::exp(output[i]) * shift;
    } else {
      for (int64_t i = 0; i < width; ++i) to[i] = output[i] * (gradient[i] - shift);
    }
  }
}

HWY_ATTR void LogSumExpRows(const float* x, float* lse, int64_t* top, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row) {
    const float* HWY_RESTRICT from = x + row * width;
    const float most = RowMax(from, width);
    top[row] = 0;
    for (int64_t i = 0; i < width; ++i) {
      if (from[i] != most) continue;
      top[row] = i;
      break;
    }
    lse[row] = static_cast<float>(static_cast<double>(most) +
                                  std::log(ExpRow(from, most, nullptr, width)));
  }
}

HWY_ATTR void ShiftedExpRow(const float* HWY_RESTRICT x, float shift, float factor, float term,
                            float* HWY_RESTRICT y, int64_t width) {
  for (int64_t i = 0; i < width; ++i) y[i] = factor * (math::exp(x[i] - shift) - term);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(SoftmaxRows);
HWY_EXPORT(SoftmaxBackwardRows);
HWY_EXPORT(LogSumExpRows);
HWY_EXPORT(ShiftedExpRow);

void softmax_rows(const float* x, float* y, int64_t rows, int64_t width, bool log) {
  HWY_DYNAMIC_DISPATCH(SoftmaxRows)(x, y, rows, width, log);
}
void softmax_backward_rows(const float* dy, const float* y, float* dx, int64_t rows, int64_t width,
                           bool log) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBackwardRows)(dy, y, dx, rows, width, log);
}
void log_sum_exp_rows(const float* x, float* lse, int64_t* top, int64_t rows, int64_t width) {
  HWY_DYNAMIC_DISPATCH(LogSumExpRows)(x, lse, top, rows, width);
}
void shifted_exp_row(const float* x, float shift, float factor, float term, float* y,
                     int64_t width) {
  HWY_DYNAMIC_DISPATCH(ShiftedExpRow)(x, shift, factor, term, y, width);
}

}  // namespace frugal::ops::simd
#endif
