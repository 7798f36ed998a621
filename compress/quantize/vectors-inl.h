// Highway vectors that pack and unpack share. Included once per instruction set.
#if defined(FRUGAL_COMPRESS_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_VECTORS_INL_H
#undef FRUGAL_COMPRESS_VECTORS_INL_H
#else
#define FRUGAL_COMPRESS_VECTORS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "compress/quantize/quantize_units.h"
#include "ops/simd/storage-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kLanes>;
using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using D8 = hn::Rebind<uint8_t, DF>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;

// Rounded once on every machine; otherwise bytes would differ.
HWY_INLINE VF Fma(VF a, VF b, VF c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  const DF d;
  alignas(64) float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, d, x), hn::Store(b, d, y), hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i) x[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, x);
#endif
}

// Truncates values in [0, 2^31). ConvertTo would spend three instructions on other values.
HWY_INLINE VU Truncate(VF v) {
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_cvttps_epi32(v.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VU{_mm256_cvttps_epi32(v.raw)};
#else
  return hn::BitCast(DU(), hn::ConvertTo(DI(), v));
#endif
}

// Element types of which whole vectors are read and written. Others go through Stage().
template <class T>
inline constexpr bool kHasVectors = std::is_same_v<T, float> || std::is_same_v<T, BFloat16>;

// A vector of a row.
template <class T>
HWY_INLINE VF LoadRow(const T* x) {
  return ops::simd::HWY_NAMESPACE::load(DF(), x);
}
template <class T>
HWY_INLINE void StoreRow(VF v, T* x) {
  ops::simd::HWY_NAMESPACE::store(DF(), v, x);
}

// The columns of a unit are worked on in vectors. Only a unit with fewer columns than a vector has
// a part of a vector. In other units the last vector may begin within the one before: what is
// computed twice is the same.
HWY_INLINE size_t VectorsOf(size_t cols) {
  const size_t lanes = hn::Lanes(DF());
  return (cols + lanes - 1) / lanes;
}
HWY_INLINE size_t FirstColumn(size_t vector, size_t cols) {
  const size_t lanes = hn::Lanes(DF());
  return cols < lanes ? 0 : std::min(vector * lanes, cols - lanes);
}

// Tells whether kernels over T may have one for codes of this width alone. Each kernel is compiled
// for every instruction set. So f32 has all widths, and bf16 those that configurations ask for. On
// x86 before AVX2, f32 has those of bf16, and bf16 has none. Before SSE4 both have none.
template <class T>
constexpr bool has_own_kernel(int bits) {
  [[maybe_unused]] const bool usual = bits == 2 || bits == 3 || bits == 4 || bits == 8;
#if HWY_ARCH_X86 && HWY_TARGET > HWY_SSE4
  return false;
#elif HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  return std::is_same_v<T, float> && usual;
#else
  return std::is_same_v<T, float> || (std::is_same_v<T, BFloat16> && usual);
#endif
}

// Calls f(zero, width): zero has the element type. width is a constant: `bits` if that is one of
// kWidths and has_own_kernel(), else 0, which stands for any width.
template <int... kWidths, class F>
void WithKernel(DType dtype, int bits, F&& f) {
  const std::integral_constant<int, 0> any;
  if (dtype == DType::f64) return f(double{}, any);
  if (dtype == DType::f16) return f(Float16{}, any);
  const auto with_width = [&]<class T>(T zero) {
    const auto is_run = [&]<int kWidth>(std::integral_constant<int, kWidth> width) {
      if constexpr (has_own_kernel<T>(kWidth)) {
        if (bits == kWidth) f(zero, width);
        return bits == kWidth;
      }
      return false;
    };
    if (!(is_run(std::integral_constant<int, kWidths>()) || ...)) f(zero, any);
  };
  dtype == DType::bf16 ? with_width(BFloat16{}) : with_width(float{});
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
