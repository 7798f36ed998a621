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

// draws_rows() for a vector of columns.
HWY_INLINE MF DrawsRows(VF range0, VF range1, const SplitWeights& weights, int bits) {
  const DF d;
  if (!may_draw_rows(weights, bits)) return hn::FirstN(d, 0);
  const VF zero = hn::Zero(d), widest = hn::Set(d, weights.drawn_range);
  return hn::And(hn::And(hn::Gt(range0, zero), hn::Gt(range1, zero)),
                 hn::And(hn::Le(range0, widest), hn::Le(range1, widest)));
}

// drawn_row() of the columns of a unit, block after block.
class DrawnRows {
 public:
  // Without `may_draw`, nothing is asked of it.
  DrawnRows(const CodeStream& stream, int64_t col0, bool may_draw) : key0_(stream.key[0]) {
    if (!may_draw) return;
    for (size_t j = 0; j < kMostColumns; ++j)
      columns_[j] = drawn_row_of_column(stream.key[1],
                                        static_cast<uint32_t>(col0) + static_cast<uint32_t>(j));
  }
  // Goes to a block of 8 rows of the view.
  HWY_INLINE void enter(int64_t block) {
    block_ = drawn_row_of_block(key0_, static_cast<uint32_t>(block));
  }
  // The rows of the vector of columns that begins at the unit's column `j`. draws: all bits are set
  // in columns that draw rows; the others have none.
  HWY_INLINE VU rows(size_t j, const uint32_t* draws) const {
    const DU du;
    VU x = hn::Xor(hn::LoadU(du, columns_ + j), hn::Set(du, block_));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(du, 0x7feb352du));
    x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(du, 0x846ca68bu));
    return hn::Or(hn::ShiftRight<kDrawShift>(x), hn::Not(hn::LoadU(du, draws + j)));
  }

 private:
  uint32_t key0_, block_ = 0;
  alignas(64) uint32_t columns_[kMostColumns];
};
HWY_INLINE MF IsDrawn(VU rows, int r) {
  return hn::RebindMask(DF(), hn::Eq(rows, hn::Set(DU(), static_cast<uint32_t>(r))));
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
