// Unpacks split groups, or their signs alone, in one pass. Memory writes bound its time, or Philox
// if rounding is dithered.
#include <cstring>

#include "compress/quantize/quantize_kernels.h"
#include "core/parallel.h"

// Scalable vectors cannot be array elements; aarch64 runs NEON.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize/quantize_split_unpack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/dither-inl.h"
#include "compress/quantize/planes-inl.h"
#include "compress/quantize/split-inl.h"
#include "compress/quantize/staging-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// Per column of a unit and class.
struct SplitSteps {
  alignas(64) uint32_t meta[4][kMostColumns] = {};  // lo0, range0, lo1, range1 as f32 bits
  alignas(64) float step[2][kMostColumns];
  alignas(64) uint32_t first[kMostColumns];  // codes of class 0
};

// Codes of class 1 unpack to mapped values, and codes of class 0 to 0.
HWY_INLINE void Map(const UnpackJob& job, const Unit& unit, SplitSteps& steps) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  alignas(64) float map[3][kMostColumns] = {};
  for (int64_t i = 0; i < 3; ++i)
    std::memcpy(map[i], job.affine + i * job.layout.cols + unit.col0, cols * sizeof(float));
  for (size_t j = 0; j < cols; j += lanes) {
    const VF lo = hn::BitCast(d, hn::Load(du, steps.meta[2] + j)), by = hn::Load(d, map[1] + j);
    const VF mapped = Fma(hn::Sub(lo, hn::Load(d, map[0] + j)), by, hn::Load(d, map[2] + j));
    hn::Store(hn::BitCast(du, mapped), du, steps.meta[2] + j);
    hn::Store(hn::Mul(hn::Load(d, steps.step[1] + j), by), d, steps.step[1] + j);
    hn::Store(hn::Zero(du), du, steps.meta[0] + j);
    hn::Store(hn::Zero(d), d, steps.step[0] + j);
  }
}

HWY_NOINLINE void ReadSteps(const UnpackJob& job, const Unit& unit, SplitSteps& steps) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const uint16_t* meta =
      reinterpret_cast<const uint16_t*>(job.payload + job.layout.meta_offset(unit.group)) +
      unit.col0;
  for (int i = 0; i < 4; ++i, meta += job.layout.metas())
    for (size_t j = 0; j < cols; ++j) steps.meta[i][j] = uint32_t{meta[j]} << 16;
  for (size_t j = 0; j < cols; j += lanes) {
    const VF range[2] = {hn::BitCast(d, hn::Load(du, steps.meta[1] + j)),
                         hn::BitCast(d, hn::Load(du, steps.meta[3] + j))};
    VF count[2];
    MF spread[2];
    SplitCodesOf(range[0], range[1], job.weights, job.layout.bits, count, spread);
    for (int k = 0; k < 2; ++k) {
      const VF step = hn::Div(range[k], hn::Sub(count[k], hn::Set(d, 1.0f)));
      hn::Store(hn::IfThenElseZero(spread[k], step), d, steps.step[k] + j);
    }
    hn::Store(Truncate(count[0]), du, steps.first + j);
  }
  if (job.affine != nullptr) Map(job, unit, steps);
}

// last: the last code of class 0, or -1. Codes are below 2^16, so a signed comparison is right, and
// every machine has one.
HWY_INLINE MF IsClass1(VU code, VI last) {
  return hn::RebindMask(DF(), hn::Gt(hn::BitCast(DI(), code), last));
}

// a - b or a | b in the lanes of `mask`, and a in the others; a b + c there, and 0 in the others.
// Each is one instruction on machines with mask registers.
HWY_INLINE VU MaskedSub(MF mask, VU a, VU b) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VU{_mm512_mask_sub_epi32(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::Sub(a, hn::IfThenElseZero(hn::RebindMask(DU(), mask), b));
#endif
}
HWY_INLINE VU MaskedOr(MF mask, VU a, VU b) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VU{_mm512_mask_or_epi32(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::Or(a, hn::IfThenElseZero(hn::RebindMask(DU(), mask), b));
#endif
}
HWY_INLINE VF FmaOrZero(MF mask, VF a, VF b, VF c) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VF{_mm512_maskz_fmadd_ps(mask.raw, a.raw, b.raw, c.raw)};
#else
  return hn::IfThenElseZero(mask, Fma(a, b, c));
#endif
}
HWY_INLINE VF LevelOf(VU code, VF less) {
  return hn::Add(hn::ConvertTo(DF(), hn::BitCast(DI(), code)), less);
}

// The rows of `unit` that lie in [job.begin, job.end).
template <class T, int kBits, bool kStream>
HWY_INLINE void SplitUnpackUnit(const UnpackJob& job, const Unit& unit) {
  const DF d;
  const DU du;
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols, offset = unit.row0 * stride + unit.col0 - job.begin;
  const int64_t limit = job.end - job.begin;
  const uint8_t* codes = job.payload + layout.code_offset(unit.group) + unit.col0;
  SplitSteps steps;
  ReadSteps(job, unit, steps);
  const UnitWords draws(job.stream, unit.col0, unit.cols);
  BlockWords words;
  const BlockRange blocks = blocks_in(layout, unit, job.begin, job.end);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    if (job.dithered) draws.Draw(static_cast<uint32_t>(unit.row0 / 8 + b), words);
    for (size_t v = 0; v < vectors; ++v) {
      const size_t j = FirstColumn(v, cols);
      const int64_t cols_left = static_cast<int64_t>(cols - j);
      VU code[8];
      LoadCodes<kBits>(codes + j, layout, {b, unit.rows, cols_left}, code);
      const VU first = hn::LoadU(du, steps.first + j);
      const VF lo0 = hn::BitCast(d, hn::LoadU(du, steps.meta[0] + j));
      const VF lo1 = hn::BitCast(d, hn::LoadU(du, steps.meta[2] + j));
      const VF step0 = hn::LoadU(d, steps.step[0] + j), step1 = hn::LoadU(d, steps.step[1] + j);
      const VI last = hn::Sub(hn::BitCast(DI(), first), hn::Set(DI(), 1));
      VF less[8], value[8];
      LoadHalfLessDither(job.dithered ? &words : nullptr, j, less);
      if (job.affine != nullptr) {  // all of class 0 is 0
        for (int r = 0; r < 8; ++r) {
          const VF level = LevelOf(hn::Sub(code[r], first), less[r]);
          value[r] = FmaOrZero(IsClass1(code[r], last), level, step1, lo1);
        }
      } else {
        for (int r = 0; r < 8; ++r) {
          const MF one = IsClass1(code[r], last);
          const VF level = LevelOf(MaskedSub(one, code[r], first), less[r]);
          value[r] = Fma(level, hn::IfThenElse(one, step1, step0), hn::IfThenElse(one, lo1, lo0));
        }
      }
      const int64_t at = offset + b * 8 * stride + static_cast<int64_t>(j);
      StoreBlock<T, kStream>(value, stride, 8, cols_left, limit - at, static_cast<T*>(job.x) + at);
    }
  }
}

template <int kBits>
HWY_INLINE void SignUnit(const UnpackJob& job, const Unit& unit) {
  const DU du;
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols;
  const uint8_t* codes = job.payload + layout.code_offset(unit.group) + unit.col0;
  uint8_t* mask = static_cast<uint8_t*>(job.x) + unit.col0;
  SplitSteps steps;
  ReadSteps(job, unit, steps);
  const BlockRange blocks = blocks_in(layout, unit, job.begin, job.end);
  for (int64_t b = blocks.begin; b < blocks.end; ++b)
    for (size_t v = 0; v < vectors; ++v) {
      const size_t j = FirstColumn(v, cols);
      const int64_t cols_left = static_cast<int64_t>(cols - j);
      VU code[8];
      LoadCodes<kBits>(codes + j, layout, {b, unit.rows, cols_left}, code);
      const VI last = hn::Sub(hn::BitCast(DI(), hn::LoadU(du, steps.first + j)), hn::Set(DI(), 1));
      VU byte = hn::Zero(du);
      for (int r = 0; r < 8; ++r) {
        byte = MaskedOr(IsClass1(code[r], last), byte, hn::Set(du, 1u << r));
      }
      uint8_t* to =
          mask + (unit.row0 / 8 + b - job.begin / stride / 8) * stride + static_cast<int64_t>(j);
      StoreBytes(byte, cols_left, to);
    }
}

template <class T, int kBits, bool kStream>
void SplitUnpackRange(const UnpackJob& job, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    SplitUnpackUnit<T, kBits, kStream>(job, unit_at(job.layout, i));
  if constexpr (kStream) hwy::FlushStream();
}

void SplitUnpackUnits(const UnpackJob& job, int64_t begin, int64_t end) {
  WithKernel<2, 3, 4, 5, 6, 7, 8>(job.dtype, job.layout.bits, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kBits = decltype(width)::value;
    if constexpr (std::is_same_v<T, float>) {
      if (bypasses_caches(job.layout, job.x, job.end - job.begin))
        return SplitUnpackRange<T, kBits, true>(job, begin, end);
    }
    SplitUnpackRange<T, kBits, false>(job, begin, end);
  });
}

// Signs are bits, so one element type serves for all.
void SplitSignUnits(const UnpackJob& job, int64_t begin, int64_t end) {
  WithKernel<2, 3, 4, 5, 6, 7, 8>(DType::f32, job.layout.bits, [&](auto, auto width) {
    for (int64_t i = begin; i < end; ++i)
      SignUnit<decltype(width)::value>(job, unit_at(job.layout, i));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(SplitUnpackUnits);
HWY_EXPORT(SplitSignUnits);

void split_dequantize_kernel(Cpu, const UnpackJob& job) {
  const auto [first, last] = units_in(job.layout, job.begin, job.end);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SplitUnpackUnits)(job, begin, end);
  });
}

void split_sign_kernel(Cpu, const UnpackJob& job) {
  const auto [first, last] = units_in(job.layout, job.begin, job.end);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SplitSignUnits)(job, begin, end);
  });
}

}  // namespace frugal::compress
#endif
