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
#include <memory>
#include <type_traits>

#include "compress/quantize/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE float ToFloat(T value) {
  return static_cast<float>(value);
}

// Elements outside `rows`, `cols` or `limit` (a number of elements from x on) become pad[column].
template <class T>
HWY_INLINE void Stage(const T* HWY_RESTRICT x, int64_t stride, int64_t rows, int64_t cols,
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

// Calls f(job, i) for the units [begin, end) of a job over bf16, with a job over a copy of the unit
// in f32, which the faster kernels take. REQUIRES: all rows of units are whole.
template <class F>
void EachWideUnit(const PackJob& job, int64_t begin, int64_t end, F f) {
  const int64_t stride = job.layout.cols;
  const std::unique_ptr<float[]> room(
      new float[static_cast<size_t>(job.layout.group_rows * stride)]);
  for (int64_t i = begin; i < end; ++i) {
    const Unit unit = unit_at(job.layout, i);
    const int64_t first = unit.row0 * stride - first_element(job);
    const BFloat16* from = static_cast<const BFloat16*>(job.x) + first + unit.col0;
    for (int64_t r = 0; r < unit.rows; ++r, from += stride) {
      float* to = room.get() + r * stride + unit.col0;
      for (int c = 0; c < unit.cols; ++c) to[c] = static_cast<float>(from[c]);
    }
    PackJob wide = job;
    wide.x = room.get() - first;
    wide.dtype = DType::f32;
    f(wide, i);
  }
}
// For jobs that unpack: what f wrote is rounded to bf16.
template <class F>
void EachWideUnit(const UnpackJob& job, int64_t begin, int64_t end, F f) {
  const int64_t stride = job.layout.cols;
  const std::unique_ptr<float[]> room(
      new float[static_cast<size_t>(job.layout.group_rows * stride)]);
  for (int64_t i = begin; i < end; ++i) {
    const Unit unit = unit_at(job.layout, i);
    const int64_t first = unit.row0 * stride - job.begin;
    UnpackJob wide = job;
    wide.x = room.get() - first;
    wide.dtype = DType::f32;
    f(wide, i);
    const BlockRange blocks = blocks_in(job.layout, unit, job.begin, job.end);
    for (int64_t r = blocks.begin * 8; r < std::min(blocks.end * 8, unit.rows); ++r) {
      const int64_t at = r * stride + unit.col0, left = job.end - job.begin - first - at;
      const float* from = room.get() + at;
      BFloat16* to = static_cast<BFloat16*>(job.x) + first + at;
      for (int64_t c = 0; c < std::min<int64_t>(unit.cols, left); ++c) to[c] = BFloat16(from[c]);
    }
  }
}

// Prefetches a vector of kRows rows of the next unit into the second cache level. The first pass
// prefetches 2 of each 8 rows and the second pass 6, in the ratio of their times. So memory is
// always busy and never gets more requests than it accepts: it drops requests that come too fast.
template <int kRows>
HWY_INLINE void Prefetch(const float* x, int64_t stride) {
  for (int64_t r = 0; r < kRows; ++r) __builtin_prefetch(x + r * stride, 0, 2);
}

// Writes 8 staged rows back: the first `rows` rows and `cols` columns, and of these the first
// `limit` elements.
template <class T>
HWY_INLINE void Unstage(const float* HWY_RESTRICT block, int64_t stride, int64_t rows, int64_t cols,
                        int64_t limit, T* HWY_RESTRICT x) {
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  const int64_t width = std::min(cols, lanes);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width && r * stride + c < limit; ++c)
      x[r * stride + c] = static_cast<T>(block[r * lanes + c]);
}

// Writes 8 vectors as rows of x, with the result of Unstage.
template <class T, bool kStream>
HWY_INLINE void StoreBlock(const VF value[8], int64_t stride, int64_t rows, int64_t cols,
                           int64_t limit, T* x) {
  const DF d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if constexpr (std::is_same_v<T, float>) {
    if (rows == 8 && cols >= lanes && limit >= 7 * stride + lanes) {
      for (int r = 0; r < 8; ++r) {
        if constexpr (kStream) {
          hn::Stream(value[r], d, x + r * stride);
        } else {
          hn::StoreU(value[r], d, x + r * stride);
        }
      }
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
