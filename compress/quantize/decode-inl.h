// Unpacks codes, a block of 8 rows of one vector of columns at a time, into registers. Included
// once for each instruction set.
#if defined(FRUGAL_COMPRESS_DECODE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef FRUGAL_COMPRESS_DECODE_INL_H
#undef FRUGAL_COMPRESS_DECODE_INL_H
#else
#define FRUGAL_COMPRESS_DECODE_INL_H
#endif

#include <cstring>

#include "compress/quantize/dither-inl.h"
#include "compress/quantize/planes-inl.h"
#include "compress/quantize/quantize_kernels.h"
#include "compress/quantize/split-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

struct DecodedBlock {
  VF value[8];
  MF class0[8];  // of split groups: which elements the bit is 0 for
};

// What the codes of a unit's columns mean.
struct ColumnSteps {
  alignas(64) float lo[2][kMostColumns];     // by class; plain groups have the first one
  alignas(64) float step[2][kMostColumns];   // likewise
  alignas(64) uint32_t first[kMostColumns];  // of split groups: codes of class 0
  alignas(64) float taken[kMostColumns];     // of plain groups: 1 where dither is taken away
};

// Codes of class 1 unpack to mapped values, and codes of class 0 to 0.
HWY_INLINE void Map(const UnpackJob& job, const Unit& unit, ColumnSteps& steps) {
  const DF d;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  alignas(64) float map[3][kMostColumns] = {};
  for (int64_t i = 0; i < 3; ++i)
    std::memcpy(map[i], job.affine + i * job.layout.cols + unit.col0, cols * sizeof(float));
  for (size_t j = 0; j < cols; j += lanes) {
    const VF lo = hn::Load(d, steps.lo[1] + j), by = hn::Load(d, map[1] + j);
    hn::Store(Fma(hn::Sub(lo, hn::Load(d, map[0] + j)), by, hn::Load(d, map[2] + j)), d,
              steps.lo[1] + j);
    hn::Store(hn::Mul(hn::Load(d, steps.step[1] + j), by), d, steps.step[1] + j);
    hn::Store(hn::Zero(d), d, steps.lo[0] + j);
    hn::Store(hn::Zero(d), d, steps.step[0] + j);
  }
}

template <bool kSplit>
HWY_NOINLINE void ReadSteps(const UnpackJob& job, const Unit& unit, ColumnSteps& steps) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const int64_t metas = job.layout.metas();
  const uint16_t* meta =
      reinterpret_cast<const uint16_t*>(job.payload + job.layout.meta_offset(unit.group)) +
      (job.layout.shared ? 0 : unit.col0);
  alignas(64) uint32_t bits[kSplit ? 4 : 2][kMostColumns] = {};
  for (auto& row : bits) {
    for (size_t j = 0; j < cols; ++j) row[j] = uint32_t{meta[job.layout.shared ? 0 : j]} << 16;
    meta += metas;
  }
  const auto meta_at = [&](int i, size_t j)
                           HWY_ATTR { return hn::BitCast(d, hn::Load(du, bits[i] + j)); };
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
      hn::Store(meta_at(0, j), d, steps.lo[0] + j);
      hn::Store(meta_at(1, j), d, steps.step[0] + j);
      for (size_t i = j; i < j + lanes; ++i)
        steps.taken[i] = takes_dither_away(steps.lo[0][i], steps.step[0][i]) ? 1.0f : 0.0f;
    }
  }
  if (kSplit && job.affine != nullptr) Map(job, unit, steps);
}

// Codes are below 2^16, so a signed comparison is right, and every machine has one.
HWY_INLINE MF IsClass0(VU code, VU first) {
  return hn::RebindMask(DF(), hn::Gt(hn::BitCast(DI(), first), hn::BitCast(DI(), code)));
}

// kBits: 0 for any width.
template <int kBits, bool kSplit>
class UnitDecoder {
 public:
  // Both must outlive this.
  UnitDecoder(const UnpackJob& job, const RoundKeys& keys)
      : job_(job), keys_(keys), planes_(planes_of(job.layout.bits)) {}

  void enter(const Unit& unit) {
    unit_ = unit;
    ReadSteps<kSplit>(job_, unit, steps_);
    if (job_.dithered) FillColumnWords(job_.stream, unit.col0, unit.cols, words_);
    codes_ = job_.payload + job_.layout.code_offset(unit.group) + unit.col0;
  }

  // What all columns of a block share.
  struct Row {
    int64_t block;
    RowWords words;
  };
  HWY_INLINE Row row(int64_t block) const {
    return {block, RowWordsOf(job_.stream, static_cast<uint32_t>(unit_.row0 / 8 + block))};
  }

  // Vector `v` of the unit's columns, which begins at column `j`.
  HWY_INLINE void decode(const Row& row, size_t v, size_t j, DecodedBlock& out) const {
    const DF d;
    const DU du;
    VU code[8];
    LoadCodes<kBits>(
        codes_ + j, job_.layout, planes_,
        {row.block, unit_.rows, static_cast<int64_t>(unit_.cols) - static_cast<int64_t>(j)}, code);
    const VF lo0 = hn::LoadU(d, steps_.lo[0] + j), step0 = hn::LoadU(d, steps_.step[0] + j);
    if constexpr (kSplit) {
      const VU first = hn::LoadU(du, steps_.first + j);
      const VF lo1 = hn::LoadU(d, steps_.lo[1] + j), step1 = hn::LoadU(d, steps_.step[1] + j);
      for (int r = 0; r < 8; ++r) {
        out.class0[r] = IsClass0(code[r], first);
        const VU level =
            hn::Sub(code[r], hn::IfThenZeroElse(hn::RebindMask(du, out.class0[r]), first));
        out.value[r] = hn::ConvertTo(d, hn::BitCast(DI(), level));
      }
      if (job_.dithered)
        TakeDitherAway({keys_, row.words, words_, true}, v, hn::Set(d, 1.0f), out.value);
      for (int r = 0; r < 8; ++r)
        out.value[r] = Fma(out.value[r], hn::IfThenElse(out.class0[r], step0, step1),
                           hn::IfThenElse(out.class0[r], lo0, lo1));
    } else {
      for (int r = 0; r < 8; ++r) out.value[r] = hn::ConvertTo(d, hn::BitCast(DI(), code[r]));
      if (job_.dithered)
        TakeDitherAway({keys_, row.words, words_, true}, v, hn::LoadU(d, steps_.taken + j),
                       out.value);
      for (int r = 0; r < 8; ++r) out.value[r] = Fma(out.value[r], step0, lo0);
    }
  }

 private:
  const UnpackJob& job_;
  const RoundKeys& keys_;
  Planes planes_;
  Unit unit_{};
  const uint8_t* codes_ = nullptr;
  ColumnSteps steps_;
  ColumnWords words_;
};

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#endif
