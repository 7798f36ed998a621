// Unpacks codes into registers, a block of 8 rows of one vector of columns at a time. Included once
// for each instruction set.
#if defined(FRUGAL_COMPRESS_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_DECODE_INL_H
#undef FRUGAL_COMPRESS_DECODE_INL_H
#else
#define FRUGAL_COMPRESS_DECODE_INL_H
#endif

#include <cstring>
#include <type_traits>

#include "compress/quantize/dither-inl.h"
#include "compress/quantize/planes-inl.h"
#include "compress/quantize/quantize_kernels.h"
#include "compress/quantize/split-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// What the codes of a unit's columns mean.
struct ColumnSteps {
  alignas(64) float lo[2][kMostColumns], step[2][kMostColumns];  // by class; plain groups have one
  alignas(64) uint32_t first[kMostColumns];  // split groups: how many codes class 0 has
  alignas(64) float taken[kMostColumns];     // plain groups: 1 where dither is taken away, else 0
  // Split groups that may draw rows: the same of drawn rows. draws: all bits are set in columns
  // that draw rows.
  alignas(64) float drawn_lo[2][kMostColumns], drawn_step[2][kMostColumns];
  alignas(64) uint32_t drawn_first[kMostColumns], draws[kMostColumns];
};

// Codes of class 1 unpack to mapped values, and codes of class 0 to 0.
HWY_INLINE void Map(const UnpackJob& job, const Unit& unit, ColumnSteps& steps) {
  const DF d;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  alignas(64) float map[3][kMostColumns] = {};
  for (int64_t i = 0; i < 3; ++i)
    std::memcpy(map[i], job.affine + i * job.layout.cols + unit.col0, cols * sizeof(float));
  const auto map_class1 = [&](float* to_lo, float* to_step) HWY_ATTR {
    for (size_t j = 0; j < cols; j += lanes) {
      const VF lo = hn::Load(d, to_lo + j), by = hn::Load(d, map[1] + j);
      hn::Store(Fma(hn::Sub(lo, hn::Load(d, map[0] + j)), by, hn::Load(d, map[2] + j)), d,
                to_lo + j);
      hn::Store(hn::Mul(hn::Load(d, to_step + j), by), d, to_step + j);
    }
  };
  map_class1(steps.lo[1], steps.step[1]);
  if (may_draw_rows(job.weights, job.layout.bits))
    map_class1(steps.drawn_lo[1], steps.drawn_step[1]);
}

// Where rows are drawn, steps are those of the rows that are not.
HWY_INLINE void ReadDrawnSteps(const UnpackJob& job, VF lo0, VF range0, VF lo1, VF range1, size_t j,
                               ColumnSteps& steps) {
  const DF d;
  const DU du;
  const VF zero = hn::Zero(d), lo[2] = {lo0, lo1}, range[2] = {range0, range1};
  const VF steps_of_most = hn::Set(d, static_cast<float>((1 << job.layout.bits) - 2));
  const MF draws = DrawsRows(range0, range1, job.weights, job.layout.bits);
  const VF half = hn::Set(d, 0.5f);
  const MF one_above = hn::Ge(hn::Sub(lo1, lo0), hn::Mul(range0, half));
  const MF zero_above = hn::Ge(hn::Sub(lo0, lo1), hn::Mul(range1, half));
  for (int k = 0; k < 2; ++k) {
    const auto by_side = [&](float if_one, float if_zero, float if_none) HWY_ATTR {
      const VF others = hn::IfThenElse(zero_above, hn::Set(d, if_zero), hn::Set(d, if_none));
      return hn::IfThenElse(one_above, hn::Set(d, if_one), others);
    };
    const VF place = by_side(drawn_place(k, 1), drawn_place(k, 0), drawn_place(k, -1));
    const VF base = by_side(drawn_base(k, 1), drawn_base(k, 0), drawn_base(k, -1));
    const VF single = Fma(range[k], place, lo[k]), several = Fma(range[k], base, lo[k]);
    const VF step = hn::Mul(hn::Div(range[k], steps_of_most), hn::Set(d, drawn_factor(k)));
    hn::Store(k == 0 ? several : single, d, steps.drawn_lo[k] + j);
    hn::Store(k == 0 ? step : zero, d, steps.drawn_step[k] + j);
    const VF usual_lo = hn::Load(d, steps.lo[k] + j), usual_step = hn::Load(d, steps.step[k] + j);
    hn::Store(hn::IfThenElse(draws, k == 0 ? single : several, usual_lo), d, steps.lo[k] + j);
    hn::Store(hn::IfThenElse(draws, k == 0 ? zero : step, usual_step), d, steps.step[k] + j);
  }
  const VU first = hn::Load(du, steps.first + j), one = hn::Set(du, 1u);
  const VU most = hn::Set(du, (1u << job.layout.bits) - 1);
  hn::Store(most, du, steps.drawn_first + j);
  hn::Store(hn::IfThenElse(hn::RebindMask(du, draws), one, first), du, steps.first + j);
  hn::Store(hn::BitCast(du, hn::VecFromMask(d, draws)), du, steps.draws + j);
}

// takes_dither_away() in each lane.
HWY_INLINE MF TakesDitherAway(VF lo, VF step) {
  const DF d;
  const MF usual = hn::And(hn::Gt(step, hn::Set(d, 0x1p-126f)), hn::Lt(step, hn::Set(d, 0x1p124f)));
  const MF far = hn::Or(hn::Lt(lo, hn::Zero(d)), hn::Ge(lo, hn::Mul(step, hn::Set(d, 0.5f))));
  return hn::And(usual, far);
}

// Vectors are written as a whole. A vector that is read from parts would wait until all stores
// before it are done, those that bypass the caches, too: a unit of 256 elements took 3 times as
// long.
template <bool kSplit>
HWY_NOINLINE void ReadSteps(const UnpackJob& job, const Unit& unit, ColumnSteps& steps) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const bool shared = job.layout.shared;
  const uint16_t* meta =
      reinterpret_cast<const uint16_t*>(job.payload + job.layout.meta_offset(unit.group)) +
      (shared ? 0 : unit.col0);
  alignas(64) uint32_t bits[kSplit ? 4 : 2][kMostColumns];
  if (!shared) {
    for (auto& row : bits) {
      size_t j = 0;
      for (; j < cols; ++j) row[j] = uint32_t{meta[j]} << 16;
      for (; j % lanes != 0; ++j) row[j] = 0;
      meta += job.layout.metas();
    }
  }
  const auto meta_at = [&](int i, size_t j) HWY_ATTR {
    return hn::BitCast(d,
                       shared ? hn::Set(du, uint32_t{meta[i]} << 16) : hn::Load(du, bits[i] + j));
  };
  for (size_t j = 0; j < cols; j += lanes) {
    if constexpr (kSplit) {
      const VF range[2] = {meta_at(1, j), meta_at(3, j)};
      VF count[2];
      MF spread[2];
      SplitCodesOf(range[0], range[1], job.weights, job.layout.bits, count, spread);
      for (int k = 0; k < 2; ++k) {
        const VF step = hn::Div(range[k], hn::Sub(count[k], hn::Set(d, 1.0f)));
        hn::Store(hn::IfThenElseZero(spread[k], step), d, steps.step[k] + j);
        hn::Store(meta_at(2 * k, j), d, steps.lo[k] + j);
      }
      hn::Store(Truncate(count[0]), du, steps.first + j);
    } else {
      const VF lo = meta_at(0, j), step = meta_at(1, j);
      hn::Store(lo, d, steps.lo[0] + j);
      hn::Store(step, d, steps.step[0] + j);
      hn::Store(hn::IfThenElseZero(TakesDitherAway(lo, step), hn::Set(d, 1.0f)), d,
                steps.taken + j);
    }
  }
  if constexpr (kSplit) {
    if (may_draw_rows(job.weights, job.layout.bits))
      for (size_t j = 0; j < cols; j += lanes)
        ReadDrawnSteps(job, meta_at(0, j), meta_at(1, j), meta_at(2, j), meta_at(3, j), j, steps);
    if (job.affine != nullptr) Map(job, unit, steps);
  }
}

// last: the last code of class 0, or -1. Codes are below 2^16, so a signed comparison is right, and
// every machine has one.
HWY_INLINE MF IsClass1(VU code, VI last) {
  return hn::RebindMask(DF(), hn::Gt(hn::BitCast(DI(), code), last));
}
HWY_INLINE VI LastBefore(VU first) { return hn::Sub(hn::BitCast(DI(), first), hn::Set(DI(), 1)); }

// a - b or a | b in the lanes of `mask`, and a in the others; a b + c there, and 0 in the others.
// Each is one instruction on machines with mask registers.
HWY_INLINE VU MaskedSub(MF mask, VU a, VU b) {
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_mask_sub_epi32(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::Sub(a, hn::IfThenElseZero(hn::RebindMask(DU(), mask), b));
#endif
}
HWY_INLINE VU MaskedOr(MF mask, VU a, VU b) {
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_mask_or_epi32(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::Or(a, hn::IfThenElseZero(hn::RebindMask(DU(), mask), b));
#endif
}
HWY_INLINE VF FmaOrZero(MF mask, VF a, VF b, VF c) {
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_maskz_fmadd_ps(mask.raw, a.raw, b.raw, c.raw)};
#else
  return hn::IfThenElseZero(mask, Fma(a, b, c));
#endif
}
HWY_INLINE VF LevelOf(VU code, VF less) {
  return hn::Add(hn::ConvertTo(DF(), hn::BitCast(DI(), code)), less);
}

// The codes of a unit. kBits: 0 for any width.
template <int kBits>
class UnitCodes {
 public:
  // `job` outlives this.
  UnitCodes(const UnpackJob& job, const Unit& unit)
      : layout_(job.layout),
        rows_(unit.rows),
        cols_(unit.cols),
        first_(job.payload + job.layout.code_offset(unit.group) + unit.col0) {}
  // Loads the codes of a block of 8 rows and the vector of columns that begins at the unit's column
  // `j`.
  HWY_INLINE void load(int64_t block, size_t j, VU code[8]) const {
    LoadCodes<kBits>(first_ + j, layout_, {block, rows_, cols_ - static_cast<int64_t>(j)}, code);
  }

 private:
  const GroupLayout& layout_;
  int64_t rows_, cols_;
  const uint8_t* first_;
};

// True where values are written past the caches.
template <class T>
HWY_INLINE bool Streams(const UnpackJob& job) {
  return std::is_same_v<T, float> && bypasses_caches(job.layout, job.x, job.end - job.begin);
}

// What the codes of a unit unpack to. kMapped: split, with UnpackJob::affine.
template <int kBits, bool kSplit, bool kMapped = false>
class UnitDecoder {
 public:
  // `job` outlives this. REQUIRES: kMapped is true exactly where job.affine is there.
  UnitDecoder(const UnpackJob& job, const Unit& unit)
      : dithered_(job.dithered),
        may_draw_(kSplit && may_draw_rows(job.weights, job.layout.bits)),
        block0_(unit.row0 / 8),
        codes_(job, unit),
        drawn_(job.stream, unit.col0, may_draw_),
        draws_(job.stream, unit.col0, unit.cols, unit.row0 / 8, (unit.rows + 7) / 8) {
    ReadSteps<kSplit>(job, unit, steps_);
  }

  // Goes to a block of 8 rows of the unit.
  HWY_INLINE void enter(int64_t block) {
    block_ = block;
    if (dithered_) words_ = &draws_.draw(block);
    if (may_draw_) drawn_.enter(block0_ + block);
  }

  // Decodes the vector of columns that begins at the unit's column `j`. Calls f(r, value, class1)
  // for each row r of the block: a row is used as soon as it is there, so few registers are needed.
  // class1: in split groups, the lanes that are of class 1; in plain groups, nothing.
  template <class F>
  HWY_INLINE void decode(size_t j, F f) const {
    const DF d;
    const DU du;
    VU code[8];
    codes_.load(block_, j, code);
    VF less[8];
    LoadHalfLessDither(words_, j, less);
    if constexpr (kSplit) {
      if constexpr (kBits <= kMostDrawnBits) {
        if (may_draw_) return decode_drawn(j, code, less, f);
      }
      const VU first = hn::LoadU(du, steps_.first + j);
      const VI last = LastBefore(first);
      const VF lo1 = hn::LoadU(d, steps_.lo[1] + j), step1 = hn::LoadU(d, steps_.step[1] + j);
      if constexpr (kMapped) {  // all of class 0 is 0
        for (int r = 0; r < 8; ++r) {
          const MF one = IsClass1(code[r], last);
          const VF level = LevelOf(hn::Sub(code[r], first), less[r]);
          f(r, FmaOrZero(one, level, step1, lo1), one);
        }
      } else {
        const VF lo0 = hn::LoadU(d, steps_.lo[0] + j), step0 = hn::LoadU(d, steps_.step[0] + j);
        for (int r = 0; r < 8; ++r) {
          const MF one = IsClass1(code[r], last);
          const VF level = LevelOf(MaskedSub(one, code[r], first), less[r]);
          f(r, Fma(level, hn::IfThenElse(one, step1, step0), hn::IfThenElse(one, lo1, lo0)), one);
        }
      }
    } else {
      const VF lo = hn::LoadU(d, steps_.lo[0] + j), step = hn::LoadU(d, steps_.step[0] + j);
      const VF by = hn::LoadU(d, steps_.taken + j);
      for (int r = 0; r < 8; ++r) {
        // The product is exact, so the sum is rounded once, whether it is fused or not.
        const VF level = hn::MulAdd(less[r], by, hn::ConvertTo(d, hn::BitCast(DI(), code[r])));
        f(r, Fma(level, step, lo), MF());
      }
    }
  }

  // decode() into arrays. It is rare, so it is a function of its own: the loops around decode()
  // need no second copy of it.
  HWY_NOINLINE void decode_block(size_t j, VF (&value)[8], MF (&class1)[8]) const {
    decode(j, [&](int r, VF x, MF one) HWY_ATTR { value[r] = x, class1[r] = one; });
  }

 private:
  // decode() where rows may be drawn.
  template <class F>
  HWY_INLINE void decode_drawn(size_t j, const VU (&code)[8], const VF (&less)[8], F f) const {
    const DF d;
    const DU du;
    const VU rows = drawn_.rows(j, steps_.draws);
    const VU first = hn::LoadU(du, steps_.first + j);
    const VU drawn_first = hn::LoadU(du, steps_.drawn_first + j);
    const VF lo1 = hn::LoadU(d, steps_.lo[1] + j), step1 = hn::LoadU(d, steps_.step[1] + j);
    const VF drawn_lo1 = hn::LoadU(d, steps_.drawn_lo[1] + j);
    const VF drawn_step1 = hn::LoadU(d, steps_.drawn_step[1] + j);
    const VF lo0 = hn::LoadU(d, steps_.lo[0] + j), step0 = hn::LoadU(d, steps_.step[0] + j);
    const VF drawn_lo0 = hn::LoadU(d, steps_.drawn_lo[0] + j);
    const VF drawn_step0 = hn::LoadU(d, steps_.drawn_step[0] + j);
    for (int r = 0; r < 8; ++r) {
      const MF drawn = IsDrawn(rows, r);
      const VU offset = hn::IfThenElse(hn::RebindMask(du, drawn), drawn_first, first);
      const MF one = IsClass1(code[r], LastBefore(offset));
      VF lo = hn::IfThenElse(drawn, drawn_lo1, lo1);
      VF step = hn::IfThenElse(drawn, drawn_step1, step1);
      if constexpr (kMapped) {
        f(r, FmaOrZero(one, LevelOf(hn::Sub(code[r], offset), less[r]), step, lo), one);
      } else {
        lo = hn::IfThenElse(one, lo, hn::IfThenElse(drawn, drawn_lo0, lo0));
        step = hn::IfThenElse(one, step, hn::IfThenElse(drawn, drawn_step0, step0));
        f(r, Fma(LevelOf(MaskedSub(one, code[r], offset), less[r]), step, lo), one);
      }
    }
  }

  const bool dithered_, may_draw_;
  const int64_t block0_;  // the number of the unit's first block in the view
  const UnitCodes<kBits> codes_;
  DrawnRows drawn_;
  int64_t block_ = 0;
  UnitWords draws_;
  ColumnSteps steps_;
  const BlockWords* words_ = nullptr;
};

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
