#include "ops/optimizer/blockwise_loops.h"

#include <limits>

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/optimizer/blockwise_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#ifndef FRUGAL_BLOCKWISE_DECADES
#define FRUGAL_BLOCKWISE_DECADES
namespace frugal::ops::simd {

constexpr Decades kWithSign = decades_of(false), kPositive = decades_of(true);

}  // namespace frugal::ops::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

HWY_ATTR float LargestMagnitude(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto top = hn::Zero(d), wrong = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto a = hn::Abs(hn::LoadU(d, x + i));
    top = hn::Max(top, a);
    wrong = hn::MulAdd(a, hn::Zero(d), wrong);  // becomes NaN if an element is not finite
  }
  float most = hn::GetLane(hn::MaxOfLanes(d, top));
  float bad = hn::GetLane(hn::SumOfLanes(d, wrong));
  for (; i < n; ++i) {
    const float a = x[i] < 0 ? -x[i] : x[i];
    most = a > most ? a : most;
    bad += a * 0;
  }
  return bad == 0 ? most : std::numeric_limits<float>::quiet_NaN();
}

// Finds the number for a magnitude. The magnitude lies in the last decade whose first middle it has
// reached. `at` is its distance from that middle, in parts of the decade. It takes the whole part
// of `at`, or one more if `share` says so. After the last middle of a decade, the next number is
// the first middle of the next decade, 3 parts away. After the very last middle the next number is
// 1, half a part away.
template <class D>
HWY_INLINE void codes_of(D d, const float* x, float scale, const Decades& decades, bool positive,
                         const uint16_t* random, uint8_t* codes) {
  const hn::RebindToSigned<D> integers;
  const auto value = hn::LoadU(d, x);
  const auto one = hn::Set(d, 1.0f);
  const auto a = hn::Min(hn::Abs(hn::Div(value, hn::Set(d, scale))), one);
  auto factor = hn::Set(d, decades.scale[0]), parts = hn::Set(d, decades.parts[0]);
  for (int e = 1; e < kDecades; ++e) {
    const auto reached = hn::Ge(a, hn::Set(d, decades.first[e]));
    factor = hn::IfThenElse(reached, hn::Set(d, decades.scale[e]), factor);
    parts = hn::IfThenElse(reached, hn::Set(d, decades.parts[e]), parts);
  }
  const auto per_part = hn::Mul(parts, hn::Set(d, 1 / 0.9f));
  const auto at = hn::MulSub(hn::Mul(a, factor), per_part,
                             hn::MulAdd(parts, hn::Set(d, 1 / 9.0f), hn::Set(d, 0.5f)));
  const auto last = hn::Sub(parts, one);
  const auto whole = hn::Max(hn::Min(hn::Floor(at), last), hn::Zero(d));
  const auto rest = hn::Sub(at, whole);
  const auto stretch = hn::IfThenElse(hn::Ge(parts, hn::Set(d, decades.parts[kDecades - 1])),
                                      hn::Set(d, 2.0f), hn::Set(d, 1 / 3.0f));
  const auto below_all = hn::Lt(a, hn::Set(d, decades.first[0]));
  auto share = hn::IfThenElse(hn::Ge(at, last), hn::Mul(rest, stretch), rest);
  share = hn::IfThenElse(below_all, hn::Mul(a, hn::Set(d, 1 / decades.first[0])), share);
  // The numbers before this decade: 0 and the numbers of all lower decades.
  auto number = hn::Add(positive ? last : parts, whole);
  number = hn::IfThenElse(below_all, hn::Zero(d), number);
  auto bar = hn::Set(d, 0.5f);
  if (random != nullptr) {
    const auto bits = hn::PromoteTo(integers, hn::LoadU(hn::Rebind<uint16_t, D>(), random));
    bar = hn::Mul(hn::Add(hn::ConvertTo(d, bits), hn::Set(d, 0.5f)), hn::Set(d, 0x1p-16f));
  }
  number = hn::Add(number, hn::IfThenElse(hn::Lt(bar, share), one, hn::Zero(d)));
  if (positive) {
    // A value above 0 keeps a number above 0; a value below 0 is taken as 0.
    number = hn::IfThenElse(hn::Gt(value, hn::Zero(d)), hn::Max(number, one), hn::Zero(d));
  } else {
    // The map has no -1.
    const auto negative = hn::Neg(hn::Min(number, hn::Set(d, 127.0f)));
    number =
        hn::Add(hn::IfThenElse(hn::Lt(value, hn::Zero(d)), negative, number), hn::Set(d, 127.0f));
  }
  const hn::Rebind<uint8_t, D> bytes;
  hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(integers, number)), bytes, codes);
}

HWY_ATTR void StateCodes(const float* x, int64_t n, float scale, bool positive,
                         const uint16_t* random, uint8_t* codes) {
  const Decades& decades = positive ? kPositive : kWithSign;
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    codes_of(wide, x + i, scale, decades, positive, random == nullptr ? nullptr : random + i,
             codes + i);
  for (; i < n; ++i)
    codes_of(one, x + i, scale, decades, positive, random == nullptr ? nullptr : random + i,
             codes + i);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(LargestMagnitude);
HWY_EXPORT(StateCodes);

float largest_magnitude(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(LargestMagnitude)(x, n);
}
void state_codes(const float* x, int64_t n, float scale, bool positive, const uint16_t* random,
                 uint8_t* codes) {
  HWY_DYNAMIC_DISPATCH(StateCodes)(x, n, scale, positive, random, codes);
}

}  // namespace frugal::ops::simd
#endif
