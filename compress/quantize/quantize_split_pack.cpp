// Pack of split groups, as quantize_pack.cpp does it: the first pass finds both classes' extremes,
// the second one quantizes from the cache while it prefetches the next unit.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "compress/quantize/quantize_kernels.h"
#include "core/parallel.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize/quantize_split_pack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/dither-inl.h"
#include "compress/quantize/planes-inl.h"
#include "compress/quantize/split-inl.h"
#include "compress/quantize/staging-inl.h"

#ifndef FRUGAL_COMPRESS_SPLIT_COLUMNS
#define FRUGAL_COMPRESS_SPLIT_COLUMNS
namespace frugal::compress {

// Per column of a unit and class.
struct SplitColumns {
  alignas(64) float mn[2][kMostColumns], mx[2][kMostColumns];
  alignas(64) float probe[kMostColumns];  // not finite if the column may hold NaN or an infinity
  alignas(64) uint32_t lo[2][kMostColumns], range[2][kMostColumns];  // f32 bits
  alignas(64) float base[2][kMostColumns];                           // lo, 0 for a non-finite group
  alignas(64) float inverse[2][kMostColumns];
  alignas(64) float count[2][kMostColumns];
  alignas(64) uint32_t draws[kMostColumns];  // all bits set where rows are drawn; set where any may
  bool keep[kMostColumns];  // false for a non-finite group; set where some column is
};

}  // namespace frugal::compress
#endif

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// The minimum of a and b in the lanes of `mask`, and a in the others. It is one instruction on
// machines with mask registers.
HWY_INLINE VF MaskedMin(MF mask, VF a, VF b) {
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_mask_min_ps(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::IfThenElse(mask, hn::Min(a, b), a);
#endif
}
HWY_INLINE VF MaskedMax(MF mask, VF a, VF b) {
#if HWY_TARGET <= HWY_AVX3
  return VF{_mm512_mask_max_ps(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::IfThenElse(mask, hn::Max(a, b), a);
#endif
}
HWY_INLINE VU MaskedAdd(MF mask, VU a, VU b) {
#if HWY_TARGET <= HWY_AVX3
  return VU{_mm512_mask_add_epi32(a.raw, mask.raw, a.raw, b.raw)};
#else
  return hn::Add(a, hn::IfThenElseZero(hn::RebindMask(DU(), mask), b));
#endif
}

// Where bit `row` of the mask's bytes is set.
HWY_INLINE MF BitsOfRow(VU bytes, int row) {
  return hn::RebindMask(DF(), hn::TestBit(bytes, hn::Set(DU(), 1u << row)));
}

// ---- First pass, of kVectors vectors of columns.
template <int kVectors>
struct Extremes {
  VF mn[2][kVectors], mx[2][kVectors], probe[kVectors];

  HWY_INLINE Extremes() {
    const DF d;
    for (int v = 0; v < kVectors; ++v) {
      mn[0][v] = mn[1][v] = hn::Set(d, std::numeric_limits<float>::infinity());
      mx[0][v] = mx[1][v] = hn::Neg(mn[0][v]);
      probe[v] = hn::Zero(d);
    }
  }
  template <class T>
  HWY_INLINE void Add(const T* HWY_RESTRICT x, int64_t stride, const VU bytes[kVectors]) {
    const size_t lanes = hn::Lanes(DF());
    for (int r = 0; r < 8; r += 2) {
      const T* row = x + r * stride;
      for (int v = 0; v < kVectors; ++v) {
        const VF a = LoadRow(row + static_cast<size_t>(v) * lanes);
        const VF b = LoadRow(row + stride + static_cast<size_t>(v) * lanes);
        const MF a1 = BitsOfRow(bytes[v], r), b1 = BitsOfRow(bytes[v], r + 1);
        const MF a0 = hn::Not(a1), b0 = hn::Not(b1);
        mn[0][v] = MaskedMin(b0, MaskedMin(a0, mn[0][v], a), b);
        mx[0][v] = MaskedMax(b0, MaskedMax(a0, mx[0][v], a), b);
        mn[1][v] = MaskedMin(b1, MaskedMin(a1, mn[1][v], a), b);
        mx[1][v] = MaskedMax(b1, MaskedMax(a1, mx[1][v], a), b);
        // If a value is not finite, neither is a product with it. A product of finite values may
        // overflow too, which costs only time.
        probe[v] = hn::MulAdd(a, b, probe[v]);
      }
    }
  }
  HWY_INLINE void Store(size_t j, SplitColumns& columns) const {
    const DF d;
    const size_t lanes = hn::Lanes(d);
    for (size_t v = 0; v < kVectors; ++v) {
      for (int k = 0; k < 2; ++k) {
        hn::StoreU(mn[k][v], d, columns.mn[k] + j + v * lanes);
        hn::StoreU(mx[k][v], d, columns.mx[k] + j + v * lanes);
      }
      hn::StoreU(probe[v], d, columns.probe + j + v * lanes);
    }
  }
};

// What the passes read of a unit.
template <class T>
struct SplitSource {
  const T* x;
  const T* next;        // the next unit's
  const uint8_t* mask;  // at the unit's first block and column
  int64_t stride, blocks;
};

template <int kVectors, class T>
HWY_NOINLINE void FindExtremes(const SplitSource<T>& from, size_t j, SplitColumns& columns) {
  const size_t lanes = hn::Lanes(DF());
  Extremes<kVectors> extremes;
  for (int64_t b = 0; b < from.blocks; ++b) {
    VU bytes[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = j + v * lanes;
      Prefetch<2>(from.next + b * 2 * from.stride + at, from.stride);
      bytes[v] = LoadBytes(from.mask + b * from.stride + at, kLanes);
    }
    extremes.Add(from.x + b * 8 * from.stride + j, from.stride, bytes);
  }
  extremes.Store(j, columns);
}

template <class T>
void FindStagedExtremes(const SplitSource<T>& from, size_t j, int64_t cols, SplitColumns& columns) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const int64_t whole = std::numeric_limits<int64_t>::max();
  alignas(64) float block[8 * kLanes];
  const float pad[kLanes] = {};  // lanes past `cols` are never read
  Extremes<1> extremes;
  for (int64_t b = 0; b < from.blocks; ++b) {
    const int64_t at = b * from.stride + static_cast<int64_t>(j);
    Stage(from.x + at + 7 * b * from.stride, from.stride, 8, cols, whole, pad, block);
    const VU bytes = LoadBytes(from.mask + at, cols);
    extremes.Add(block, lanes, &bytes);
  }
  extremes.Store(j, columns);
}

// ---- Metadata of a unit. Returns true if some column is not finite.
// lo and range of a class, as f32 bits.
HWY_INLINE void StoreRange(int k, size_t j, SplitColumns& columns) {
  const DF d;
  const DU du;
  const VF zero = hn::Zero(d);
  const VU low16 = hn::Set(du, 0xffffu), upper16 = hn::Set(du, 0xffff0000u);
  const VF mn = hn::Load(d, columns.mn[k] + j), mx = hn::Load(d, columns.mx[k] + j);
  const MF empty = hn::Gt(mn, mx);
  const VU m = hn::BitCast(du, hn::Add(mn, zero));
  const VU negative = hn::BitCast(du, hn::BroadcastSignBit(hn::BitCast(DI(), m)));
  const VF lo = hn::BitCast(d, hn::And(hn::Add(m, hn::And(negative, low16)), upper16));
  VF range = hn::Sub(hn::Add(mx, zero), lo);
  range = hn::BitCast(d, hn::And(hn::Add(hn::BitCast(du, range), low16), upper16));
  range = hn::IfThenElse(hn::Gt(range, zero), hn::Max(range, hn::Set(d, kSplitMinRange)), zero);
  range = hn::IfThenElse(empty, hn::Set(d, -0.0f), range);
  hn::Store(hn::BitCast(du, hn::IfThenZeroElse(empty, lo)), du, columns.lo[k] + j);
  hn::Store(hn::BitCast(du, range), du, columns.range[k] + j);
}

// Looks at a unit that may hold NaN, infinities or large values, and corrects its extremes.
template <class T>
bool FindNonfinite(const SplitSource<T>& from, size_t cols, SplitColumns& columns) {
  bool all = true;
  const float inf = std::numeric_limits<float>::infinity();
  for (size_t j = 0; j < cols; ++j) {
    columns.keep[j] = true;
    for (int k = 0; k < 2; ++k) columns.mn[k][j] = inf, columns.mx[k][j] = -inf;
    for (int64_t r = 0; r < from.blocks * 8; ++r) {
      const float value = ToFloat(from.x[r * from.stride + static_cast<int64_t>(j)]);
      const int k = from.mask[r / 8 * from.stride + static_cast<int64_t>(j)] >> (r % 8) & 1;
      columns.keep[j] = columns.keep[j] && std::fabs(value) <= kSplitMaxMagnitude;
      columns.mn[k][j] = std::min(columns.mn[k][j], value);
      columns.mx[k][j] = std::max(columns.mx[k][j], value);
    }
    all = all && columns.keep[j];
  }
  return !all;
}

template <class T>
bool SplitParameters(const PackJob& job, const Unit& unit, const SplitSource<T>& from,
                     SplitColumns& columns) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f), limit = hn::Set(d, kSplitMaxMagnitude);
  bool suspect = false;
  for (size_t j = 0; j < cols; j += lanes) {
    const VF probe = hn::Load(d, columns.probe + j);
    const VF mn = hn::Min(hn::Load(d, columns.mn[0] + j), hn::Load(d, columns.mn[1] + j));
    const VF mx = hn::Max(hn::Load(d, columns.mx[0] + j), hn::Load(d, columns.mx[1] + j));
    const MF fine = hn::And(hn::And(hn::Ge(mn, hn::Neg(limit)), hn::Le(mx, limit)),
                            hn::Eq(hn::Sub(probe, probe), zero));
    suspect = suspect || !hn::AllTrue(d, fine);
  }
  const bool odd = suspect && FindNonfinite(from, cols, columns);
  for (size_t j = 0; j < cols; j += lanes)
    for (int k = 0; k < 2; ++k) StoreRange(k, j, columns);
  if (odd) {
    int64_t nonfinite = 0;
    for (size_t j = 0; j < cols; ++j) {
      if (columns.keep[j]) continue;
      ++nonfinite;
      for (int k = 0; k < 2; ++k)
        columns.lo[k][j] = columns.range[k][j] = uint32_t{kNonfiniteBits} << 16;
    }
    job.nonfinite->add(nonfinite);
  }
  const bool draws = may_draw_rows(job.weights, job.layout.bits);
  for (size_t j = 0; j < cols; j += lanes) {
    const VF range[2] = {hn::BitCast(d, hn::Load(du, columns.range[0] + j)),
                         hn::BitCast(d, hn::Load(du, columns.range[1] + j))};
    VF count[2];
    MF spread[2];
    SplitCodesOf(range[0], range[1], job.weights, job.layout.bits, count, spread);
    VF inverse[2];
    for (int k = 0; k < 2; ++k) {
      inverse[k] = hn::IfThenElseZero(spread[k], hn::Div(hn::Sub(count[k], one), range[k]));
      const VF lo = hn::BitCast(d, hn::Load(du, columns.lo[k] + j));
      hn::Store(hn::IfThenElseZero(hn::Eq(lo, lo), lo), d, columns.base[k] + j);
    }
    if (draws) {
      const MF drawing = DrawsRows(range[0], range[1], job.weights, job.layout.bits);
      const VF most = hn::Set(d, static_cast<float>((1 << job.layout.bits) - 1));
      hn::Store(hn::BitCast(du, hn::VecFromMask(d, drawing)), du, columns.draws + j);
      count[0] = hn::IfThenElse(drawing, one, count[0]);
      count[1] = hn::IfThenElse(drawing, most, count[1]);
      for (int k = 0; k < 2; ++k)
        inverse[k] = hn::IfThenElse(drawing, hn::Div(hn::Sub(most, one), range[k]), inverse[k]);
    }
    for (int k = 0; k < 2; ++k) {
      hn::Store(inverse[k], d, columns.inverse[k] + j);
      hn::Store(count[k], d, columns.count[k] + j);
    }
  }
  uint16_t* meta =
      reinterpret_cast<uint16_t*>(job.payload + job.layout.meta_offset(unit.group)) + unit.col0;
  for (int k = 0; k < 2; ++k) {
    for (size_t j = 0; j < cols; ++j) meta[j] = static_cast<uint16_t>(columns.lo[k][j] >> 16);
    meta += job.layout.metas();
    for (size_t j = 0; j < cols; ++j) meta[j] = static_cast<uint16_t>(columns.range[k][j] >> 16);
    meta += job.layout.metas();
  }
  return odd;
}

// ---- Second pass: one block of 8 rows of `x` in a vector of columns, from column `j` on.
// kDraws: rows may be drawn, those in `rows`.
template <int kBits, bool kFull, bool kDraws, class T>
HWY_INLINE void SplitBlock(const T* x, int64_t x_stride, VU bytes, const GroupLayout& layout,
                           const SplitColumns& columns, size_t j, const BlockWords* words, VU rows,
                           uint8_t* codes, const BlockShape& at) {
  const DF d;
  VF dither[8];
  LoadDither<kBits != 0>(words, j, dither);
  const VF base0 = hn::LoadU(d, columns.base[0] + j), base1 = hn::LoadU(d, columns.base[1] + j);
  const VF inverse0 = hn::LoadU(d, columns.inverse[0] + j);
  const VF inverse1 = hn::LoadU(d, columns.inverse[1] + j);
  const VF count0 = hn::LoadU(d, columns.count[0] + j);
  const VF count1 = hn::LoadU(d, columns.count[1] + j);
  const VU offset = Truncate(count0);
  VU code[8];
  if constexpr (kDraws) {
    const DU du;
    const MF draws = hn::MaskFromVec(hn::BitCast(d, hn::LoadU(du, columns.draws + j)));
    // Where rows are drawn, class 0 has one code, and class 1 the others, or the other way round.
    const VU drawn_offset = Truncate(count1);
    for (int r = 0; r < 8; ++r) {
      const MF bit = BitsOfRow(bytes, r), drawn = IsDrawn(rows, r);
      const MF single = hn::AndNot(hn::Xor(bit, drawn), draws);
      const VF base = hn::IfThenElse(bit, base1, base0);
      const VF inverse = hn::IfThenZeroElse(single, hn::IfThenElse(bit, inverse1, inverse0));
      const VF level = Fma(hn::Sub(LoadRow(x + r * x_stride), base), inverse, dither[r]);
      // Few codes: nothing to clamp, see below.
      code[r] = MaskedAdd(bit, Truncate(level),
                          hn::IfThenElse(hn::RebindMask(du, drawn), drawn_offset, offset));
    }
  } else {
    for (int r = 0; r < 8; ++r) {
      const MF bit = BitsOfRow(bytes, r);
      const VF base = hn::IfThenElse(bit, base1, base0);
      const VF inverse = hn::IfThenElse(bit, inverse1, inverse0);
      VF level = Fma(hn::Sub(LoadRow(x + r * x_stride), base), inverse, dither[r]);
      // With up to 256 codes (n - 1) (1 + 2^-24) + u + 1 with u <= 1 - 2^-9 rounds below n + 1:
      // nothing to clamp.
      if constexpr (kBits == 0) level = hn::Min(level, hn::IfThenElse(bit, count1, count0));
      code[r] = MaskedAdd(bit, Truncate(level), offset);
    }
  }
  StoreCodes<kBits, kFull>(code, layout, codes + j, at);
}

// One function for all widths and dtypes, so that the compiler has less to do. drawn: null where no
// row may be drawn.
HWY_NOINLINE void SplitStaged(const float* block, VU bytes, const GroupLayout& layout,
                              const SplitColumns& columns, size_t j, const BlockWords* words,
                              const DrawnRows* drawn, uint8_t* codes, const BlockShape& at) {
  const auto stride = static_cast<int64_t>(hn::Lanes(DF()));
  if (drawn != nullptr)
    SplitBlock<0, false, true>(block, stride, bytes, layout, columns, j, words,
                               drawn->rows(j, columns.draws), codes, at);
  else
    SplitBlock<0, false, false>(block, stride, bytes, layout, columns, j, words, bytes, codes, at);
}

// Copies a block of few columns, of another dtype, or with non-finite columns, which become 0.
template <class T>
HWY_NOINLINE void PrepareSplit(const T* x, int64_t stride, int64_t cols, bool odd,
                               const SplitColumns& columns, size_t j, float* block) {
  const size_t lanes = hn::Lanes(DF());
  const float pad[kLanes] = {};
  Stage(x, stride, 8, cols, std::numeric_limits<int64_t>::max(), pad, block);
  if (!odd) return;
  for (size_t c = 0; c < lanes && static_cast<int64_t>(c) < cols; ++c)
    for (size_t r = 0; r < 8 && !columns.keep[j + c]; ++r) block[r * lanes + c] = 0;
}

// kBits: 0 for any width and rounding; else that width with stochastic rounding. kDraws: rows may
// be drawn.
template <class T, int kBits, bool kDraws>
HWY_INLINE void SplitUnit(const PackJob& job, const Unit& unit, int64_t next_offset) {
  const DF d;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols;
  const T* all = static_cast<const T*>(job.x);
  const int64_t offset = unit.row0 * stride - first_element(job);
  const SplitSource<T> from{all + offset + unit.col0, all + next_offset,
                            job.mask + offset / 8 + unit.col0, stride, unit.rows / 8};
  constexpr bool kDirect = kHasVectors<T>;
  SplitColumns columns;

  size_t j = 0;
  if constexpr (kDirect) {
    for (; j + 2 * lanes <= cols; j += 2 * lanes) FindExtremes<2>(from, j, columns);
    for (; j + lanes <= cols; j += lanes) FindExtremes<1>(from, j, columns);
    if (j < cols && cols >= lanes) {
      for (float* each :
           {columns.mn[0], columns.mn[1], columns.mx[0], columns.mx[1], columns.probe})
        hn::Store(hn::Zero(d), d, each + j);  // the lanes beyond `cols` are finite
      FindExtremes<1>(from, cols - lanes, columns);
      j = cols;
    }
  }
  for (; j < cols; j += lanes) FindStagedExtremes(from, j, static_cast<int64_t>(cols - j), columns);
  const bool odd = SplitParameters(job, unit, from, columns);

  UnitWords draws(job.stream, unit.col0, unit.cols, unit.row0 / 8, from.blocks);
  const BlockWords* words = nullptr;
  uint8_t* codes = job.payload + layout.code_offset(unit.group) + unit.col0;
  const size_t vectors = VectorsOf(cols);
  std::optional<DrawnRows> drawn;
  if constexpr (kDraws) drawn.emplace(job.stream, unit.col0, true);
  for (int64_t b = 0; b < from.blocks; ++b) {
    if (job.stochastic) words = &draws.draw(b);
    if constexpr (kDraws) drawn->enter(unit.row0 / 8 + b);
    const T* at = from.x + b * 8 * stride;
    const uint8_t* bytes = from.mask + b * stride;
    size_t v = 0;
    if constexpr (kDirect) {
      for (; !odd && cols >= lanes && v < vectors; ++v) {
        j = FirstColumn(v, cols);
        Prefetch<6>(from.next + (from.blocks * 2 + b * 6) * stride + j, stride);
        const VU mask = LoadBytes(bytes + j, kLanes);
        VU rows = mask;
        if constexpr (kDraws) rows = drawn->rows(j, columns.draws);
        SplitBlock<kBits, true, kDraws>(at + j, stride, mask, layout, columns, j, words, rows,
                                        codes, {b, unit.rows, 0});
      }
    }
    for (; v < vectors; ++v) {
      j = FirstColumn(v, cols);
      const int64_t cols_left = static_cast<int64_t>(cols - j);
      alignas(64) float block[8 * kLanes];
      PrepareSplit(at + j, stride, cols_left, odd, columns, j, block);
      SplitStaged(block, LoadBytes(bytes + j, cols_left), layout, columns, j, words,
                  kDraws ? &*drawn : nullptr, codes, {b, unit.rows, cols_left});
    }
  }
}

template <class T, int kBits, bool kDraws>
void SplitRange(const PackJob& job, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const Unit next = unit_at(job.layout, std::min(i + 1, end - 1));
    SplitUnit<T, kBits, kDraws>(job, unit_at(job.layout, i),
                                next.row0 * job.layout.cols + next.col0 - first_element(job));
  }
}

void SplitPackUnits(const PackJob& job, int64_t begin, int64_t end) {
  WithKernel<2, 3, 4, 5, 6, 7, 8>(job.dtype, job.stochastic ? job.layout.bits : 0,
                                  [&](auto zero, auto width) {
                                    using T = decltype(zero);
                                    constexpr int kBits = decltype(width)::value;
                                    if constexpr (kBits <= kMostDrawnBits) {
                                      if (may_draw_rows(job.weights, job.layout.bits))
                                        return SplitRange<T, kBits, true>(job, begin, end);
                                    }
                                    SplitRange<T, kBits, false>(job, begin, end);
                                  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(SplitPackUnits);

void split_quantize_kernel(Cpu, const PackJob& job) {
  const auto [first, last] = units_of_groups(job.layout, job.first, job.count);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SplitPackUnits)(job, begin, end);
  });
}

}  // namespace frugal::compress
#endif
