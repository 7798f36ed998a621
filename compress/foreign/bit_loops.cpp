#include "compress/foreign/bit_loops.h"

#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/foreign/bit_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace frugal::compress::foreign {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Calls f with a zero of the unsigned type of so many bytes.
template <class F>
HWY_INLINE void with_lane(int size, F f) {
  if (size == 1) return f(uint8_t{0});
  if (size == 2) return f(uint16_t{0});
  if (size == 4) return f(uint32_t{0});
  f(uint64_t{0});
}

// Calls f(d, block, column) over all columns of all blocks: whole vectors, then single elements.
template <class T, class F>
HWY_INLINE void for_vectors(BitBlocks blocks, F f) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 1> one;
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  for (int64_t block = 0; block < blocks.count; ++block) {
    int64_t c = 0;
    for (; c + lanes <= blocks.cols; c += lanes) f(wide, block, c);
    for (; c < blocks.cols; ++c) f(one, block, c);
  }
}

template <class D>
HWY_INLINE void store_bytes(D d, hn::Vec<D> bits, uint8_t* to) {
  const hn::Rebind<uint8_t, D> bytes;
  if constexpr (sizeof(hn::TFromD<D>) == 1)
    hn::StoreU(bits, d, to);
  else
    hn::StoreU(hn::TruncateTo(bytes, bits), bytes, to);
}
template <class D>
HWY_INLINE hn::Vec<D> load_bytes(D d, const uint8_t* from) {
  const hn::Rebind<uint8_t, D> bytes;
  if constexpr (sizeof(hn::TFromD<D>) == 1)
    return hn::LoadU(d, from);
  else if constexpr (sizeof(hn::TFromD<D>) == 8)
    return hn::PromoteTo(d, hn::PromoteTo(hn::Rebind<uint32_t, D>(), hn::LoadU(bytes, from)));
  else
    return hn::PromoteTo(d, hn::LoadU(bytes, from));
}

// Writes the bits of all blocks: test(d, v) is a mask of the elements v.
template <class T, class F>
HWY_INLINE void write_blocks(const T* x, BitBlocks blocks, uint8_t* to, F test) {
  for_vectors<T>(blocks, [&](auto d, int64_t block, int64_t c) HWY_ATTR {
    const T* const from = x + block * 8 * blocks.cols + c;
    auto bits = hn::Zero(d);
    for (int k = 0; k < 8; ++k) {
      const auto v = hn::LoadU(d, from + k * blocks.cols);
      bits = hn::Or(bits, hn::IfThenElseZero(test(d, v), hn::Set(d, static_cast<T>(1u << k))));
    }
    store_bytes(d, bits, to + block * blocks.cols + c);
  });
}

void PositiveBits(const void* x, int size, uint64_t infinity, BitBlocks blocks, uint8_t* to) {
  with_lane(size, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    write_blocks(static_cast<const T*>(x), blocks, to, [&](auto d, auto v) HWY_ATTR {
      const hn::RebindToSigned<decltype(d)> ints;
      using Signed = hn::TFromD<decltype(ints)>;
      const auto value = hn::BitCast(ints, v);
      const auto last = hn::Set(ints, static_cast<Signed>(infinity));
      return hn::RebindMask(d,
                            hn::And(hn::Gt(value, hn::Zero(ints)), hn::Not(hn::Gt(value, last))));
    });
  });
}

void DifferingBits(const void* x, int size, uint64_t first, uint64_t second, BitBlocks blocks,
                   uint8_t* to, bool* others) {
  with_lane(size, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    const auto a = static_cast<T>(first), b = static_cast<T>(second);
    bool third = false;
    for_vectors<T>(blocks, [&](auto d, int64_t block, int64_t c) HWY_ATTR {
      const T* const from = static_cast<const T*>(x) + block * 8 * blocks.cols + c;
      const auto va = hn::Set(d, a), vb = hn::Set(d, b);
      auto bits = hn::Zero(d), rest = hn::Zero(d);
      for (int k = 0; k < 8; ++k) {
        const auto v = hn::LoadU(d, from + k * blocks.cols);
        const auto same = hn::Eq(v, va);
        bits = hn::Or(bits, hn::IfThenZeroElse(same, hn::Set(d, static_cast<T>(1u << k))));
        rest = hn::Or(rest, hn::IfThenZeroElse(same, hn::Xor(v, vb)));
      }
      third |= !hn::AllTrue(d, hn::Eq(rest, hn::Zero(d)));
      store_bytes(d, bits, to + block * blocks.cols + c);
    });
    *others = third;
  });
}

void FillByBits(const uint8_t* bits, int size, uint64_t zeros, uint64_t ones, BitBlocks blocks,
                void* to) {
  with_lane(size, [&](auto zero) HWY_ATTR {
    using T = decltype(zero);
    for_vectors<T>(blocks, [&](auto d, int64_t block, int64_t c) HWY_ATTR {
      T* const out = static_cast<T*>(to) + block * 8 * blocks.cols + c;
      const auto bytes = load_bytes(d, bits + block * blocks.cols + c);
      const auto no = hn::Set(d, static_cast<T>(zeros)), yes = hn::Set(d, static_cast<T>(ones));
      for (int k = 0; k < 8; ++k) {
        const auto set = hn::TestBit(bytes, hn::Set(d, static_cast<T>(1u << k)));
        hn::StoreU(hn::IfThenElse(set, yes, no), d, out + k * blocks.cols);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress::foreign
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress::foreign {

HWY_EXPORT(PositiveBits);
HWY_EXPORT(DifferingBits);
HWY_EXPORT(FillByBits);

void positive_bits(const void* x, int size, uint64_t infinity, BitBlocks blocks, uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(PositiveBits)(x, size, infinity, blocks, to);
}
bool differing_bits(const void* x, int size, uint64_t first, uint64_t second, BitBlocks blocks,
                    uint8_t* to) {
  bool others = false;
  HWY_DYNAMIC_DISPATCH(DifferingBits)(x, size, first, second, blocks, to, &others);
  return !others;
}
void fill_by_bits(const uint8_t* bits, int size, uint64_t zeros, uint64_t ones, BitBlocks blocks,
                  void* to) {
  HWY_DYNAMIC_DISPATCH(FillByBits)(bits, size, zeros, ones, blocks, to);
}

}  // namespace frugal::compress::foreign
#endif
