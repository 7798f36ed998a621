// Shared by packing and unpacking of split groups (compress/quantize/quantize_split.h). Included
// once for each instruction set.
#if defined(FRUGAL_COMPRESS_SPLIT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_SPLIT_INL_H
#undef FRUGAL_COMPRESS_SPLIT_INL_H
#else
#define FRUGAL_COMPRESS_SPLIT_INL_H
#endif

#include "compress/quantize/quantize_split.h"
#include "compress/quantize/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

using MF = hn::Mask<DF>;

// split_codes() for a vector of columns, as floats, and which classes have several codes.
HWY_INLINE void SplitCodesOf(VF range0, VF range1, const SplitWeights& weights, int bits,
                             VF (&count)[2], MF (&spread)[2]) {
  const DF d;
  const DU du;
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f), two = hn::Set(d, 2.0f);
  const VF all = hn::Set(d, static_cast<float>(1 << bits));
  const VU empty = hn::Set(du, uint32_t{kEmptyRangeBits} << 16);
  const MF empty0 = hn::RebindMask(d, hn::Eq(hn::BitCast(du, range0), empty));
  const MF empty1 = hn::RebindMask(d, hn::Eq(hn::BitCast(du, range1), empty));
  const VF few0 = hn::IfThenElse(empty0, zero, one), few1 = hn::IfThenElse(empty1, zero, one);
  spread[0] = hn::Gt(range0, zero), spread[1] = hn::Gt(range1, zero);
  const VF a = hn::Mul(hn::Set(d, weights.class0), range0);
  const VF share = hn::Div(a, Fma(hn::Set(d, weights.class1), range1, a));
  VF both = hn::Round(hn::Mul(all, share));
  both = hn::Min(hn::Max(both, two), hn::Sub(all, two));
  const VF first = hn::IfThenElse(spread[1], both, hn::Sub(all, few1));
  count[0] = hn::IfThenElse(spread[0], first, few0);
  count[1] = hn::IfThenElse(spread[1], hn::Sub(all, count[0]), few1);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
