// Vectors of f32 that are loaded from f32 or bf16 and stored as either. Included once per
// instruction set.
#if defined(FRUGAL_OPS_SIMD_STORAGE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_OPS_SIMD_STORAGE_INL_H
#undef FRUGAL_OPS_SIMD_STORAGE_INL_H
#else
#define FRUGAL_OPS_SIMD_STORAGE_INL_H
#endif

#include <hwy/highway.h>

#include "core/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* from) {
  const hn::Rebind<uint16_t, D> halves;
  const hn::RebindToUnsigned<D> words;
  const auto bits = hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, bits)));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float* to) {
  hn::StoreU(v, d, to);
}
// The bits of v as bf16, in the lower half of each lane. Rounds to nearest even and keeps NaN, as
// BFloat16 does. The processor's own instruction would take subnormal numbers as 0.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bf16_bits(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> words;
  const hn::RebindToSigned<D> ints;
  const auto bits = hn::BitCast(words, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(upper, hn::Set(words, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fff))));
  const auto size = hn::BitCast(ints, hn::And(bits, hn::Set(words, 0x7fffffff)));
  const auto nan = hn::RebindMask(words, hn::Gt(size, hn::Set(ints, 0x7f800000)));
  return hn::IfThenElse(nan, hn::Or(upper, hn::Set(words, 0x40)), rounded);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, BFloat16* to) {
  const hn::Rebind<uint16_t, D> halves;
  const hn::RebindToSigned<D> ints;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(ints, bf16_bits(d, v))), halves,
             reinterpret_cast<uint16_t*>(to));
}
// What is loaded after v was stored as bf16.
template <class D>
HWY_INLINE hn::Vec<D> rounded_to_bf16(D d, hn::Vec<D> v) {
  return hn::BitCast(d, hn::ShiftLeft<16>(bf16_bits(d, v)));
}

}  // namespace frugal::ops::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FRUGAL_OPS_SIMD_STORAGE_INL_H
