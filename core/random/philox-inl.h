// Philox 4x32 for many counters at a time, a counter in each lane. Included once per instruction
// set.
#if defined(FRUGAL_CORE_PHILOX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_CORE_PHILOX_INL_H
#undef FRUGAL_CORE_PHILOX_INL_H
#else
#define FRUGAL_CORE_PHILOX_INL_H
#endif

#include <hwy/highway.h>

#include "core/rng.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The keys of Philox's rounds, widened so that broadcasts read them from memory.
struct RoundKeys {
  explicit RoundKeys(uint64_t seed) {
    for (uint32_t round = 0; round < 10; ++round) {  // the keys of the rounds are a Weyl sequence
      k0[round] = static_cast<uint32_t>(seed) + round * 0x9E3779B9u;
      k1[round] = static_cast<uint32_t>(seed >> 32) + round * 0xBB67AE85u;
    }
  }
  uint64_t k0[10], k1[10];
};

#if HWY_TARGET != HWY_SCALAR
// The words of counters first, first + 1, ..., as philox() of core/rng.h gives them. Each word is
// the lower half of 64 bits, where the multiplication reads it, so rounds need no shuffles. The
// upper halves are of no use.
template <class D>
struct LaneWords {
  hn::Vec<D> w0, w1, w2, w3;
};
template <class D>
HWY_INLINE LaneWords<D> PhiloxLanes(D d, RngKey key, const RoundKeys& keys, uint64_t first) {
  const hn::Repartition<uint32_t, D> du;
  const auto m0 = hn::Set(du, 0xD2511F53u), m1 = hn::Set(du, 0xCD9E8D57u);
  auto w0 = hn::Add(hn::Iota(d, 0), hn::Set(d, first));
  auto w1 = hn::ShiftRight<32>(w0);
  auto w2 = hn::Set(d, key.offset), w3 = hn::ShiftRight<32>(w2);
  for (int round = 0; round < 10; ++round) {
    const auto a = hn::MulEven(hn::BitCast(du, w0), m0), b = hn::MulEven(hn::BitCast(du, w2), m1);
    w0 = hn::Xor3(hn::ShiftRight<32>(b), w1, hn::Set(d, keys.k0[round]));
    w1 = b;
    w2 = hn::Xor3(hn::ShiftRight<32>(a), w3, hn::Set(d, keys.k1[round]));
    w3 = a;
  }
  return {w0, w1, w2, w3};
}

// Lanes of u32: the words `lower` and `upper` of each counter, side by side.
template <class D>
HWY_INLINE hn::Vec<hn::Repartition<uint32_t, D>> SideBySide(D, hn::Vec<D> lower, hn::Vec<D> upper) {
  const hn::Repartition<uint32_t, D> du;
  return hn::OddEven(hn::BitCast(du, hn::ShiftLeft<32>(upper)), hn::BitCast(du, lower));
}
#endif

}  // namespace frugal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // FRUGAL_CORE_PHILOX_INL_H
