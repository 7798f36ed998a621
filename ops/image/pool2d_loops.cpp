#include "ops/image/pool2d_loops.h"

#include <algorithm>
#include <limits>

#include "core/finite.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/image/pool2d_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// The loops are plain C++: the compiler vectorises them for the target that this pass of
// foreach_target sets.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

constexpr int64_t kStrip = 64;  // channels at a time, so that values and cells stay in the L1 cache

template <class T>
void MaxPoolRow(const PoolImage& m, const T* HWY_RESTRICT x, int64_t oh, T* HWY_RESTRICT y,
                uint8_t* HWY_RESTRICT index) {
  const Pool2dOptions& o = m.options;
  const int64_t top = oh * o.stride[0] - o.padding[0];
  const int64_t h0 = std::max<int64_t>(top, 0), h1 = std::min(top + o.kernel[0], m.h);
  for (int64_t ow = 0; ow < m.out_w; ++ow) {
    const int64_t left = ow * o.stride[1] - o.padding[1];
    const int64_t w0 = std::max<int64_t>(left, 0), w1 = std::min(left + o.kernel[1], m.w);
    for (int64_t strip = 0; strip < m.c; strip += kStrip) {
      const int64_t width = std::min(kStrip, m.c - strip);
      float best[kStrip];
      int32_t cell[kStrip];
      const auto start = static_cast<int32_t>((h0 - top) * o.kernel[1] + w0 - left);
      for (int64_t k = 0; k < kStrip; ++k) {
        best[k] = -std::numeric_limits<float>::infinity();
        cell[k] = start;
      }
      for (int64_t h = h0; h < h1; ++h)
        for (int64_t w = w0; w < w1; ++w) {
          const T* HWY_RESTRICT p = x + (h * m.w + w) * m.c + strip;
          const auto here = static_cast<int32_t>((h - top) * o.kernel[1] + w - left);
          for (int64_t k = 0; k < width; ++k) {
            // NaN wins, and stays: nothing is above it.
            const auto v = static_cast<float>(p[k]);
            const bool wins = !(v <= best[k]) && !is_nan(best[k]);
            best[k] = wins ? v : best[k];
            cell[k] = wins ? here : cell[k];
          }
        }
      T* HWY_RESTRICT to = y + ow * m.c + strip;
      uint8_t* HWY_RESTRICT at = index + ow * m.c + strip;
      for (int64_t k = 0; k < width; ++k) to[k] = static_cast<T>(best[k]);
      for (int64_t k = 0; k < width; ++k) at[k] = static_cast<uint8_t>(cell[k]);
    }
  }
}

template <class T>
void MaxPoolBackwardRow(const PoolImage& m, const T* HWY_RESTRICT dy,
                        const uint8_t* HWY_RESTRICT index, int64_t h, float* HWY_RESTRICT dx) {
  const Pool2dOptions& o = m.options;
  std::fill_n(dx, m.w * m.c, 0.0f);
  // Finds the windows in which row r of the window is this row: oh * stride - padding + r == h.
  const int64_t shifted = h + o.padding[0];
  const int64_t first = std::max<int64_t>(0, (shifted - o.kernel[0]) / o.stride[0]);
  for (int64_t oh = first; oh < m.out_h && oh * o.stride[0] <= shifted; ++oh) {
    const int64_t r = shifted - oh * o.stride[0];
    if (r >= o.kernel[0]) continue;
    for (int64_t ow = 0; ow < m.out_w; ++ow) {
      const int64_t left = ow * o.stride[1] - o.padding[1], at = (oh * m.out_w + ow) * m.c;
      const int64_t s0 = std::max<int64_t>(0, -left), s1 = std::min(o.kernel[1], m.w - left);
      for (int64_t s = s0; s < s1; ++s) {
        const auto cell = static_cast<int32_t>(r * o.kernel[1] + s);
        float* HWY_RESTRICT to = dx + (left + s) * m.c;
        for (int64_t k = 0; k < m.c; ++k)
          to[k] +=
              static_cast<int32_t>(index[at + k]) == cell ? static_cast<float>(dy[at + k]) : 0.0f;
      }
    }
  }
}

void MaxPoolF32(const PoolImage& m, const float* x, int64_t oh, float* y, uint8_t* index) {
  MaxPoolRow(m, x, oh, y, index);
}
void MaxPoolBf16(const PoolImage& m, const BFloat16* x, int64_t oh, BFloat16* y, uint8_t* index) {
  MaxPoolRow(m, x, oh, y, index);
}
void MaxPoolBackwardF32(const PoolImage& m, const float* dy, const uint8_t* index, int64_t h,
                        float* dx) {
  MaxPoolBackwardRow(m, dy, index, h, dx);
}
void MaxPoolBackwardBf16(const PoolImage& m, const BFloat16* dy, const uint8_t* index, int64_t h,
                         float* dx) {
  MaxPoolBackwardRow(m, dy, index, h, dx);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(MaxPoolF32);
HWY_EXPORT(MaxPoolBf16);
HWY_EXPORT(MaxPoolBackwardF32);
HWY_EXPORT(MaxPoolBackwardBf16);

void max_pool_row(const PoolImage& image, const float* x, int64_t oh, float* y, uint8_t* index) {
  HWY_DYNAMIC_DISPATCH(MaxPoolF32)(image, x, oh, y, index);
}
void max_pool_row(const PoolImage& image, const BFloat16* x, int64_t oh, BFloat16* y,
                  uint8_t* index) {
  HWY_DYNAMIC_DISPATCH(MaxPoolBf16)(image, x, oh, y, index);
}
void max_pool_backward_row(const PoolImage& image, const float* dy, const uint8_t* index, int64_t h,
                           float* dx) {
  HWY_DYNAMIC_DISPATCH(MaxPoolBackwardF32)(image, dy, index, h, dx);
}
void max_pool_backward_row(const PoolImage& image, const BFloat16* dy, const uint8_t* index,
                           int64_t h, float* dx) {
  HWY_DYNAMIC_DISPATCH(MaxPoolBackwardBf16)(image, dy, index, h, dx);
}

}  // namespace frugal::ops::simd
#endif
