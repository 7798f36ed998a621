// Random words of the quantizer, many columns at a time. Included once per instruction set.
#if defined(FRUGAL_COMPRESS_DITHER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_DITHER_INL_H
#undef FRUGAL_COMPRESS_DITHER_INL_H
#else
#define FRUGAL_COMPRESS_DITHER_INL_H
#endif

#include "compress/quantize/quantize_reference.h"
#include "compress/quantize/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// Lanes are columns. A word is held as two vectors of u64 lanes (the lower and the upper half of
// the columns). Only the low 32 bits of a lane count; the multiplication reads them there, so
// rounds need no shuffles. Words that depend only on the row, or only on the column, are computed
// once and not for each element.
#if HWY_TARGET != HWY_SCALAR
using DW = hn::Repartition<uint64_t, DU>;
using VW = hn::Vec<DW>;

HWY_INLINE VW Multiply(VW word, VU multiplier) {
  return hn::MulEven(hn::BitCast(DU(), word), multiplier);
}
HWY_INLINE VW High(VW product) { return hn::ShiftRight<32>(product); }

struct ColumnWords {  // words 2 and 3 after round 2, without the part that depends on the row
  alignas(64) uint64_t high[2][kMostColumns], low[2][kMostColumns];
};
struct RowWords {  // the part of rounds 2 to 4 that depends on the row
  uint64_t r2, r3a, r3b, r4;
};

inline void FillColumnWords(const CodeStream& s, int64_t col0, int cols, ColumnWords& words) {
  constexpr size_t half = hn::MaxLanes(DU()) / 2;
  const uint32_t first = static_cast<uint32_t>((uint64_t{kM1} * s.counter[0]) >> 32) ^ s.key[0];
  const size_t all = static_cast<size_t>(cols);
  for (size_t v = 0; v < VectorsOf(all); ++v)
    for (size_t part = 0; part < 2; ++part)
      for (size_t lane = 0; lane < half; ++lane) {
        const size_t c = FirstColumn(v, all) + part * half + lane;
        const uint32_t word = first ^ static_cast<uint32_t>(col0 + static_cast<int64_t>(c));
        const uint64_t product = uint64_t{kM0} * word;
        words.high[part][v * half + lane] = product >> 32;
        words.low[part][v * half + lane] = product;
      }
}

inline RowWords RowWordsOf(const CodeStream& s, uint32_t block) {
  const uint32_t k0 = s.key[0], k1 = s.key[1];
  const uint64_t p = uint64_t{kM0} * block;
  const uint32_t a1 = kM1 * s.counter[0];
  const uint32_t a2 = static_cast<uint32_t>(p >> 32) ^ s.counter[1] ^ k1;
  const uint32_t a3 = static_cast<uint32_t>(p);
  const uint64_t q = uint64_t{kM1} * a2;
  const uint32_t b0 = static_cast<uint32_t>(q >> 32) ^ a1 ^ (k0 + kW0);
  const uint32_t b1 = static_cast<uint32_t>(q);
  const uint64_t r = uint64_t{kM0} * b0;
  return {a3 ^ (k1 + kW1), b1 ^ (k0 + 2 * kW0), static_cast<uint32_t>(r >> 32) ^ (k1 + 2 * kW1),
          static_cast<uint32_t>(r) ^ (k1 + 3 * kW1)};
}

// Keys of rounds 3 to 6, widened so that broadcasts read them from memory.
struct RoundKeys {
  explicit RoundKeys(const CodeStream& s) {
    for (uint32_t round = 0; round < 4; ++round) {
      k0[round] = s.key[0] + (round + 3) * kW0;
      k1[round] = s.key[1] + (round + 3) * kW1;
    }
  }
  uint64_t k0[4], k1[4];
};

// The four words of 8 rows, for one half of the columns, from round 2 on.
HWY_INLINE void PhiloxHalf(const RoundKeys& keys, const RowWords& row, VW high, VW low, VW out[4]) {
  const DW d;
  const DU du;
  const VU m0 = hn::Set(du, kM0), m1 = hn::Set(du, kM1);
  const VW p = Multiply(hn::Xor(high, hn::Set(d, row.r2)), m1);
  VW w0 = hn::Xor(High(p), hn::Set(d, row.r3a));
  VW w1 = p;
  VW w2 = hn::Xor(low, hn::Set(d, row.r3b));
  VW w3;
  {
    const VW a = Multiply(w0, m0), b = Multiply(w2, m1);
    w0 = hn::Xor3(High(b), w1, hn::Set(d, keys.k0[0]));
    w1 = b;
    w2 = hn::Xor(High(a), hn::Set(d, row.r4));
    w3 = a;
  }
  for (int round = 1; round < 4; ++round) {
    const VW a = Multiply(w0, m0), b = Multiply(w2, m1);
    w0 = hn::Xor3(High(b), w1, hn::Set(d, keys.k0[round]));
    w1 = b;
    w2 = hn::Xor3(High(a), w3, hn::Set(d, keys.k1[round]));
    w3 = a;
  }
  out[0] = w0, out[1] = w1, out[2] = w2, out[3] = w3;
}

// (bits & mask) | one. It is one instruction, which overwrites `bits`, where the processor has it.
HWY_INLINE VU Insert(VU bits, VU mask, VU one) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return VU{_mm512_ternarylogic_epi32(bits.raw, mask.raw, one.raw, 0xEA)};
#else
  return hn::Or(hn::And(bits, mask), one);
#endif
}

// 1 + u for 8 rows, in vector `v` of the unit's columns.
HWY_INLINE void Dither(const RoundKeys& keys, const RowWords& row, const ColumnWords& columns,
                       size_t v, VF out[8]) {
  const DW d;
  const DU du;
  VW lower[4], upper[4];
  const size_t at = v * hn::Lanes(d);
  PhiloxHalf(keys, row, hn::Load(d, columns.high[0] + at), hn::Load(d, columns.low[0] + at), lower);
  PhiloxHalf(keys, row, hn::Load(d, columns.high[1] + at), hn::Load(d, columns.low[1] + at), upper);
  const VU one = hn::Set(du, 0x3f800040u), mask = hn::Set(du, 0x007fff80u);
  for (int i = 0; i < 4; ++i) {
    const VU w = hn::ConcatEven(du, hn::BitCast(du, upper[i]), hn::BitCast(du, lower[i]));
    out[2 * i] = hn::BitCast(DF(), Insert(hn::ShiftLeft<7>(w), mask, one));
    out[2 * i + 1] = hn::BitCast(DF(), Insert(hn::ShiftRight<9>(w), mask, one));
  }
}
#else
struct ColumnWords {
  int64_t col0 = 0;
};
struct RowWords {
  uint32_t block;
};
inline void FillColumnWords(const CodeStream&, int64_t col0, int, ColumnWords& words) {
  words.col0 = col0;
}
inline RowWords RowWordsOf(const CodeStream&, uint32_t block) { return {block}; }
struct RoundKeys {
  explicit RoundKeys(const CodeStream& s) : stream(s) {}
  CodeStream stream;
};
HWY_INLINE void Dither(const RoundKeys& keys, const RowWords& row, const ColumnWords& columns,
                       size_t v, VF out[8]) {
  const auto words = code_words(keys.stream, row.block,
                                static_cast<uint32_t>(columns.col0) + static_cast<uint32_t>(v));
  for (size_t r = 0; r < 8; ++r) {
    const uint32_t h = words[r / 2] >> (r % 2 * 16) & 0xffffu;
    out[r] = hn::Set(DF(), 1.0f + (static_cast<float>(h) + 0.5f) / 65536.0f);
  }
}
#endif

struct BlockWords {  // the source of the random words of a block; empty with nearest rounding
  const RoundKeys& keys;
  const RowWords& row;
  const ColumnWords& columns;
  bool stochastic;
};

// 1 + u of a block, in vector `v` of the unit's columns. kStochastic: rounding is known not to be
// nearest.
template <bool kStochastic>
HWY_INLINE void LoadDither(const BlockWords& words, size_t v, VF out[8]) {
  if (kStochastic || words.stochastic) {
    Dither(words.keys, words.row, words.columns, v, out);
  } else {
    for (int r = 0; r < 8; ++r) out[r] = hn::Set(DF(), 1.5f);
  }
}

// Adds (1/2 - u) by to the levels of a block; `by` is 0 or 1.
HWY_INLINE void TakeDitherAway(const BlockWords& words, size_t v, VF by, VF level[8]) {
  const VF middle = hn::Set(DF(), 1.5f);
  VF dither[8];
  Dither(words.keys, words.row, words.columns, v, dither);
  // The product is exact, so the sum is rounded once, whether it is fused or not.
  for (int r = 0; r < 8; ++r) level[r] = hn::MulAdd(hn::Sub(middle, dither[r]), by, level[r]);
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
