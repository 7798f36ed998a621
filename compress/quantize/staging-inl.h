// Staging: 8 rows of one vector of columns as f32, for short rows, other dtypes and odd groups.
// Also prefetching. Included once for each instruction set.
#if defined(FRUGAL_COMPRESS_STAGING_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_STAGING_INL_H
#undef FRUGAL_COMPRESS_STAGING_INL_H
#else
#define FRUGAL_COMPRESS_STAGING_INL_H
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <type_traits>

#include "compress/quantize/vectors-inl.h"
#include "compress/quantize/within_f16.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE float ToFloat(T value) {
  return static_cast<float>(value);
}
// A rebuilt value in the dtype of its tensor.
template <class T>
HWY_INLINE T FromFloat(float value) {
  if constexpr (std::is_same_v<T, Float16>) return T(within_f16(value));
  return static_cast<T>(value);
}

// Elements outside `rows`, `cols` or `limit` (a number of elements from x on) become pad[column].
// This and Unstage() are functions of their own: each of the many kernels would hold a copy.
template <class T>
HWY_NOINLINE void Stage(const T* HWY_RESTRICT x, int64_t stride, int64_t rows, int64_t cols,
                        int64_t limit, const float* HWY_RESTRICT pad, float* HWY_RESTRICT out) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  if (rows >= 8 && cols >= lanes && limit >= 7 * stride + lanes) {
    for (int64_t r = 0; r < 8; ++r)
      for (int64_t c = 0; c < lanes; ++c) out[r * lanes + c] = ToFloat(x[r * stride + c]);
    return;
  }
  for (int64_t r = 0; r < 8; ++r)
    for (int64_t c = 0; c < lanes; ++c) {
      const bool inside = r < rows && c < cols && r * stride + c < limit;
      out[r * lanes + c] = inside ? ToFloat(x[r * stride + c]) : pad[c];
    }
}

// Prefetches a vector of kRows rows of the next unit into the second cache level. The first pass
// prefetches 2 of each 8 rows and the second pass 6, in the ratio of their times. So memory is
// always busy and never gets more requests than it accepts: it drops requests that come too fast.
template <int kRows, class T>
HWY_INLINE void Prefetch(const T* x, int64_t stride) {
  for (int64_t r = 0; r < kRows; ++r) __builtin_prefetch(x + r * stride, 0, 2);
}

// Writes 8 staged rows back: the first `rows` rows and `cols` columns, and of these the first
// `limit` elements.
template <class T>
HWY_NOINLINE void Unstage(const float* HWY_RESTRICT block, int64_t stride, int64_t rows,
                          int64_t cols, int64_t limit, T* HWY_RESTRICT x) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  const int64_t width = std::min(cols, lanes);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width && r * stride + c < limit; ++c)
      x[r * stride + c] = FromFloat<T>(block[r * lanes + c]);
}

// Writes 8 vectors as rows of x, with the result of Unstage. stream: past the caches, f32 alone.
template <class T>
HWY_INLINE void StoreBlock(const VF value[8], int64_t stride, int64_t rows, int64_t cols,
                           int64_t limit, bool stream, T* x) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (kHasVectors<T>) {
    if (rows == 8 && cols >= lanes && limit >= 7 * stride + lanes) {
      if constexpr (std::is_same_v<T, float>) {
        if (stream) {
          for (int r = 0; r < 8; ++r) hn::Stream(value[r], d, x + r * stride);
          return;
        }
      }
      for (int r = 0; r < 8; ++r) StoreRow(value[r], x + r * stride);
      return;
    }
  }
  alignas(64) float block[8 * kLanes];
  for (int r = 0; r < 8; ++r) hn::Store(value[r], d, block + r * lanes);
  Unstage(block, stride, rows, cols, limit, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
