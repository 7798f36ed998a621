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
// Words whose upper halves are v as bf16. Rounds to nearest even and keeps NaN, as BFloat16 does.
// The processor's own instruction would take subnormal numbers as 0.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> bf16_words(D, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> words;
  const auto bits = hn::BitCast(words, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(words, 0x7fff)));
  const auto nan = hn::RebindMask(words, hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Or(bits, hn::Set(words, 0x400000)), rounded);
}
template <class D, class Words>
HWY_INLINE void store_upper_halves(D, Words words, BFloat16* to) {
  const hn::Rebind<uint16_t, D> halves;
  auto* bits = reinterpret_cast<uint16_t*>(to);
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) * sizeof(float) >= 16) {
    const hn::Repartition<uint16_t, D> all;
    const auto both = hn::BitCast(all, words);
    return hn::StoreU(hn::LowerHalf(halves, hn::ConcatOdd(all, both, both)), halves, bits);
  }
#endif
  const hn::RebindToSigned<D> ints;
  hn::StoreU(hn::DemoteTo(halves, hn::BitCast(ints, hn::ShiftRight<16>(words))), halves, bits);
}
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, BFloat16* to) {
  store_upper_halves(d, bf16_words(d, v), to);
}
// What is loaded after v was stored as bf16.
template <class D>
HWY_INLINE hn::Vec<D> rounded_to_bf16(D d, hn::Vec<D> v) {
  const hn::RebindToUnsigned<D> words;
  return hn::BitCast(d, hn::And(bf16_words(d, v), hn::Set(words, 0xffff0000)));
}
// store() of what was loaded from such memory, or 0.
template <class D>
HWY_INLINE void store_unrounded(D d, hn::Vec<D> v, float* to) {
  store(d, v, to);
}
template <class D>
HWY_INLINE void store_unrounded(D d, hn::Vec<D> v, BFloat16* to) {
  store_upper_halves(d, hn::BitCast(hn::RebindToUnsigned<D>(), v), to);
}

}  // namespace frugal::ops::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FRUGAL_OPS_SIMD_STORAGE_INL_H
