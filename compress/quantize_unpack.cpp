// Unpack: one pass, bound by the writes.
#include <cstring>

#include "compress/quantize_kernels.h"
#include "core/parallel.h"

// Scalable vectors cannot be array elements; aarch64 runs NEON.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize_unpack.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

template <int kWidth, bool kOnly>
HWY_INLINE void LoadPlane(const uint8_t* in, int64_t stride, int64_t byte_rows, int64_t cols,
                          int shift, VU* codes) {
  constexpr int per_byte = 8 / kWidth;
  const D8 d8;
  const DU du;
  const bool whole = cols >= static_cast<int64_t>(hn::Lanes(d8));
  for (int i = 0; i < kWidth; ++i) {
    if (i >= byte_rows) return;
    VU bytes;
    if (whole) {
      bytes = hn::PromoteTo(du, hn::LoadU(d8, in + i * stride));
    } else {
      uint8_t all[kLanes] = {};
      std::memcpy(all, in + i * stride, static_cast<size_t>(cols));
      bytes = hn::PromoteTo(du, hn::LoadU(d8, all));
    }
    for (int k = 0; k < per_byte; ++k) {
      VU part = k == 0 ? bytes : hn::ShiftRightSame(bytes, k * kWidth);
      if (k + 1 < per_byte) part = hn::And(part, hn::Set(du, (1u << kWidth) - 1));
      VU& code = codes[i * per_byte + k];
      code = kOnly ? part : hn::Or(code, hn::ShiftLeftSame(part, shift));
    }
  }
}

template <class T, int kBits, bool kStream>
HWY_INLINE void UnpackUnit(const UnpackJob& job, const Unit& unit) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols, offset = unit.row0 * stride + unit.col0;
  T* x = static_cast<T*>(job.x) + offset;
  const int64_t limit = layout.numel - offset;
  const uint8_t* codes = job.payload + layout.code_offset(unit.group) + unit.col0;
  const uint16_t* meta =
      reinterpret_cast<const uint16_t*>(job.payload + layout.meta_offset(unit.group)) + unit.col0;
  alignas(64) uint32_t lo[kStrip] = {}, scale[kStrip] = {};
  for (size_t j = 0; j < cols; ++j) {
    lo[j] = uint32_t{meta[layout.shared ? 0 : j]} << 16;
    scale[j] = uint32_t{meta[static_cast<size_t>(layout.metas()) + (layout.shared ? 0 : j)]} << 16;
  }
  const Planes planes = planes_of(layout.bits);
  const int64_t blocks = (unit.rows + 7) / 8;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t here = std::min<int64_t>(8, unit.rows - b * 8);
    for (size_t j = 0; j < cols; j += lanes) {
      const int64_t cols_left = static_cast<int64_t>(cols - j);
      VU code[8];
      for (int r = 0; r < 8; ++r) code[r] = hn::Zero(du);
      if constexpr (kBits != 0) {
        LoadPlane<kBits, true>(codes + b * kBits * stride + j, stride, (here * kBits + 7) / 8,
                               cols_left, 0, code);
      } else {
        const uint8_t* plane = codes + j;
        int shift = 0;
        for (int p = 0; p < planes.count; ++p) {
          const int w = planes.width[static_cast<size_t>(p)];
          const uint8_t* at = plane + b * w * stride;
          const int64_t byte_rows = (here * w + 7) / 8;
          if (w == 8) LoadPlane<8, false>(at, stride, byte_rows, cols_left, shift, code);
          if (w == 4) LoadPlane<4, false>(at, stride, byte_rows, cols_left, shift, code);
          if (w == 2) LoadPlane<2, false>(at, stride, byte_rows, cols_left, shift, code);
          if (w == 1) LoadPlane<1, false>(at, stride, byte_rows, cols_left, shift, code);
          shift += w;
          plane += (unit.rows * w + 7) / 8 * stride;
        }
      }
      const VF vlo = hn::BitCast(d, hn::Load(du, lo + j));
      const VF vscale = hn::BitCast(d, hn::Load(du, scale + j));
      T* at = x + b * 8 * stride + j;
      const int64_t left = limit - b * 8 * stride - static_cast<int64_t>(j);
      bool direct = false;
      if constexpr (std::is_same_v<T, float>) {
        direct = here == 8 && cols_left >= static_cast<int64_t>(lanes) &&
                 left >= 7 * stride + static_cast<int64_t>(lanes);
        if (direct) {
          for (int r = 0; r < 8; ++r) {
            const VF value = Fma(hn::ConvertTo(d, hn::BitCast(DI(), code[r])), vscale, vlo);
            if constexpr (kStream) {
              hn::Stream(value, d, at + r * stride);
            } else {
              hn::StoreU(value, d, at + r * stride);
            }
          }
        }
      }
      if (!direct) {
        alignas(64) float block[8 * kLanes];
        for (int r = 0; r < 8; ++r)
          hn::Store(Fma(hn::ConvertTo(d, hn::BitCast(DI(), code[r])), vscale, vlo), d,
                    block + static_cast<size_t>(r) * lanes);
        const int64_t width = std::min<int64_t>(cols_left, static_cast<int64_t>(lanes));
        for (int64_t r = 0; r < here; ++r)
          for (int64_t c = 0; c < width && r * stride + c < left; ++c)
            at[r * stride + c] =
                static_cast<T>(block[static_cast<size_t>(r) * lanes + static_cast<size_t>(c)]);
      }
    }
  }
}

template <class T, int kBits, bool kStream>
void UnpackRange(const UnpackJob& job, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) UnpackUnit<T, kBits, kStream>(job, unit_at(job.layout, i));
  if constexpr (kStream) hwy::FlushStream();
}

template <int kBits>
void UnpackFloats(const UnpackJob& job, int64_t begin, int64_t end) {
  // Past the caches' size, writes that bypass them save reading what is overwritten. Streaming
  // stores want whole aligned vectors.
  constexpr int64_t kLarge = int64_t{8} << 20;
  const bool aligned =
      job.layout.cols % kLanes == 0 && reinterpret_cast<uintptr_t>(job.x) % 64 == 0;
  if (aligned && job.layout.numel >= kLarge)
    return UnpackRange<float, kBits, true>(job, begin, end);
  UnpackRange<float, kBits, false>(job, begin, end);
}

void UnpackUnits(const UnpackJob& job, int64_t begin, int64_t end) {
  switch (job.dtype) {
    case DType::f64:
      return UnpackRange<double, 0, false>(job, begin, end);
    case DType::bf16:
      return UnpackRange<BFloat16, 0, false>(job, begin, end);
    case DType::f16:
      return UnpackRange<Float16, 0, false>(job, begin, end);
    default:
      break;
  }
  switch (job.layout.bits) {
    case 1:
      return UnpackFloats<1>(job, begin, end);
    case 2:
      return UnpackFloats<2>(job, begin, end);
    case 4:
      return UnpackFloats<4>(job, begin, end);
    case 8:
      return UnpackFloats<8>(job, begin, end);
    default:
      return UnpackFloats<0>(job, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(UnpackUnits);

void dequantize_kernel(Cpu, const UnpackJob& job) {
  parallel_for(0, units_of(job.layout), grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(UnpackUnits)(job, begin, end);
  });
}

}  // namespace frugal::compress
#endif
