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

// The random bytes of 8 rows of a unit's columns: of rows 0 to 3, and of rows 4 to 7.
struct BlockWords {
  alignas(64) uint32_t rows[2][kMostColumns];
};

#if HWY_TARGET != HWY_SCALAR
// Lanes are pairs of columns: a word is a vector of u64 lanes. Only the low 32 bits of a lane
// count; the multiplication reads them there, so rounds need no shuffles. After the last round both
// halves of a lane hold a word, so that u32 lanes are columns. Words that depend only on the row,
// or only on the columns, are computed once and not for each element.
using DW = hn::Repartition<uint64_t, DU>;
using VW = hn::Vec<DW>;

HWY_INLINE VW Multiply(VW word, VU multiplier) {
  return hn::MulEven(hn::BitCast(DU(), word), multiplier);
}
HWY_INLINE VW High(VW product) { return hn::ShiftRight<32>(product); }

// The words of one block of 8 rows after the other, for the columns of a unit. REQUIRES: an even
// first column.
class UnitWords {
 public:
  // block0: the number of the unit's first block in the view; blocks: how many the unit has.
  UnitWords(const CodeStream& s, int64_t col0, int cols, int64_t block0, int64_t blocks)
      : s_(s), block0_(block0), blocks_(blocks), vectors_(VectorsOf(static_cast<size_t>(cols))) {
    const uint32_t first = static_cast<uint32_t>((uint64_t{kM1} * s.counter[0]) >> 32) ^ s.key[0];
    const DW d;
    for (size_t pair = 0; pair < vectors_ * hn::Lanes(d); pair += hn::Lanes(d)) {
      const VW column = hn::Iota(d, static_cast<uint64_t>(col0) / 2 + pair);
      const VW product = Multiply(hn::Xor(hn::Set(d, first), column), hn::Set(DU(), kM0));
      hn::Store(High(product), d, high_ + pair);
      hn::Store(product, d, low_ + pair);
    }
    for (uint32_t round = 0; round < 4; ++round) {
      k0_[round] = s.key[0] + (round + 3) * kW0;
      k1_[round] = s.key[1] + (round + 3) * kW1;
    }
    k0_[3] <<= 32, k1_[3] <<= 32;
  }

  // The words of a block of the unit, until the next call. Those of the next block are drawn, too:
  // rounds wait for each other, and the processor works on what needs this block's words meanwhile.
  HWY_INLINE const BlockWords& draw(int64_t block) {
    if (HWY_UNLIKELY(block != ready_)) compute(block);
    ready_ = block + 1;
    if (ready_ < blocks_) compute(ready_);
    return words_[block % 2];
  }

 private:
  HWY_INLINE void compute(int64_t block) {
    const DW d;
    const RowWords row = row_words(static_cast<uint32_t>(block0_ + block));
    for (size_t v = 0; v < vectors_; ++v) {
      const size_t at = v * hn::Lanes(d);
      Philox(row, hn::Load(d, high_ + at), hn::Load(d, low_ + at), words_[block % 2], 2 * at);
    }
  }

  struct RowWords {  // the part of rounds 2 to 4 that depends on the row
    uint64_t r2, r3a, r3b, r4;
  };

  RowWords row_words(uint32_t block) const {
    const uint32_t k0 = s_.key[0], k1 = s_.key[1];
    const uint64_t p = uint64_t{kM0} * block;
    const uint32_t a1 = kM1 * s_.counter[0];
    const uint32_t a2 = static_cast<uint32_t>(p >> 32) ^ s_.counter[1] ^ k1;
    const uint32_t a3 = static_cast<uint32_t>(p);
    const uint64_t q = uint64_t{kM1} * a2;
    const uint32_t b0 = static_cast<uint32_t>(q >> 32) ^ a1 ^ (k0 + kW0);
    const uint32_t b1 = static_cast<uint32_t>(q);
    const uint64_t r = uint64_t{kM0} * b0;
    return {a3 ^ (k1 + kW1), b1 ^ (k0 + 2 * kW0), static_cast<uint32_t>(r >> 32) ^ (k1 + 2 * kW1),
            static_cast<uint32_t>(r) ^ (k1 + 3 * kW1)};
  }

  // From round 2 on, for the vector of columns from `column` on.
  HWY_INLINE void Philox(const RowWords& row, VW high, VW low, BlockWords& words,
                         size_t column) const {
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
      w0 = hn::Xor3(High(b), w1, hn::Set(d, k0_[0]));
      w1 = b;
      w2 = hn::Xor(High(a), hn::Set(d, row.r4));
      w3 = a;
    }
    for (int round = 1; round < 3; ++round) {
      const VW a = Multiply(w0, m0), b = Multiply(w2, m1);
      w0 = hn::Xor3(High(b), w1, hn::Set(d, k0_[round]));
      w1 = b;
      w2 = hn::Xor3(High(a), w3, hn::Set(d, k1_[round]));
      w3 = a;
    }
    // The lower half of a product is a word of the even column. The upper half becomes one of the
    // odd column.
    const VW a = Multiply(w0, m0), b = Multiply(w2, m1);
    const VW first = hn::Xor3(b, hn::ShiftLeft<32>(w1), hn::Set(d, k0_[3]));
    const VW second = hn::Xor3(a, hn::ShiftLeft<32>(w3), hn::Set(d, k1_[3]));
    hn::Store(hn::BitCast(du, first), du, words.rows[0] + column);
    hn::Store(hn::BitCast(du, second), du, words.rows[1] + column);
  }

  const CodeStream& s_;
  int64_t block0_, blocks_, ready_ = -1;  // ready_: the block that was drawn ahead
  size_t vectors_;
  BlockWords words_[2];
  // Words 2 and 3 after round 2, without the part that depends on the row.
  alignas(64) uint64_t high_[kMostColumns / 2], low_[kMostColumns / 2];
  // Keys of rounds 3 to 6, widened so that broadcasts read them from memory; those of round 6 are
  // in the upper halves.
  uint64_t k0_[4], k1_[4];
};

// (bits & mask) | one. It is one instruction, which overwrites `bits`, where the processor has it.
HWY_INLINE VU Insert(VU bits, VU mask, VU one) {
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_ternarylogic_epi32(bits.raw, mask.raw, one.raw, 0xEA)};
#else
  return hn::Or(hn::And(bits, mask), one);
#endif
}
#else
class UnitWords {
 public:
  UnitWords(const CodeStream& s, int64_t col0, int cols, int64_t block0, int64_t)
      : s_(s), col0_(col0), block0_(block0), cols_(cols) {}
  const BlockWords& draw(int64_t block) {
    for (int64_t c = 0; c < cols_; ++c) {
      const auto drawn = code_words(s_, static_cast<uint32_t>(block0_ + block),
                                    static_cast<uint32_t>((col0_ + c) / 2));
      for (int64_t half = 0; half < 2; ++half)
        words_.rows[half][c] = drawn[static_cast<size_t>(dither_word(4 * half, col0_ + c))];
    }
    return words_;
  }

 private:
  const CodeStream& s_;
  int64_t col0_, block0_, cols_;
  BlockWords words_;
};

HWY_INLINE VU Insert(VU bits, VU mask, VU one) { return hn::Or(hn::And(bits, mask), one); }
#endif

// 1 + u of a block, for the vector of the unit's columns from column `j` on.
HWY_INLINE void Dither(const BlockWords& words, size_t j, VF out[8]) {
  const DF d;
  const DU du;
  // A byte becomes the upper bits of a mantissa, and 1 / 512 follows it.
  const VU one = hn::Set(du, 0x3f804000u), mask = hn::Set(du, 0x007f8000u);
  for (int half = 0; half < 2; ++half) {
    const VU w = hn::LoadU(du, words.rows[half] + j);
    VF* to = out + 4 * half;
    to[0] = hn::BitCast(d, Insert(hn::ShiftLeft<15>(w), mask, one));
    to[1] = hn::BitCast(d, Insert(hn::ShiftLeft<7>(w), mask, one));
    to[2] = hn::BitCast(d, Insert(hn::ShiftRight<1>(w), mask, one));
    to[3] = hn::BitCast(d, Insert(hn::ShiftRight<9>(w), mask, one));
  }
}

// Dither(), or 1.5 everywhere if `words` is null: that rounds to the nearest. kStochastic: the
// caller knows that `words` is not null.
template <bool kStochastic>
HWY_INLINE void LoadDither(const BlockWords* words, size_t j, VF out[8]) {
  if (kStochastic || words != nullptr) {
    Dither(*words, j, out);
  } else {
    for (int r = 0; r < 8; ++r) out[r] = hn::Set(DF(), 1.5f);
  }
}

// 1/2 - u of a block, which is what dithered rounding adds to levels; `words` null: 0.
HWY_INLINE void LoadHalfLessDither(const BlockWords* words, size_t j, VF out[8]) {
  const DF d;
  const VF middle = hn::Set(d, 1.5f);
  if (words == nullptr) {
    for (int r = 0; r < 8; ++r) out[r] = hn::Zero(d);
  } else {
    Dither(*words, j, out);
    for (int r = 0; r < 8; ++r) out[r] = hn::Sub(middle, out[r]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
