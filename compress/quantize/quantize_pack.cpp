// Pack: one pass over a unit finds minima and maxima, a second one quantizes it from the cache
// while it prefetches the next unit: memory is read once, and is busy while Philox keeps the
// arithmetic units busy.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compress/quantize/quantize_kernels.h"
#include "core/parallel.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize/quantize_pack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/dither-inl.h"
#include "compress/quantize/planes-inl.h"
#include "compress/quantize/staging-inl.h"

#ifndef FRUGAL_COMPRESS_PACK_COLUMNS
#define FRUGAL_COMPRESS_PACK_COLUMNS
namespace frugal::compress {

// Per column of a unit.
struct Columns {
  alignas(64) float mn[kMostColumns], mx[kMostColumns];
  alignas(64) float probe[kMostColumns];    // not finite if the column may hold NaN or an infinity
  alignas(64) float base[kMostColumns];     // lo * half
  alignas(64) float inverse[kMostColumns];  // 1 / step
  alignas(64) float half[kMostColumns];     // 1, 0.5, or 0 for a non-finite group
  alignas(64) uint32_t lo[kMostColumns], scale[kMostColumns];  // f32 bits
};

}  // namespace frugal::compress
#endif

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// ---- First pass: minima, maxima, and a probe for NaN, of kVectors vectors of columns.
template <int kVectors, class T>
HWY_NOINLINE void Extremes(const T* HWY_RESTRICT x, int64_t stride, int64_t rows, const T* next,
                           size_t j, Columns& columns) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  VF mn[kVectors], mx[kVectors], probe[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    mn[v] = mx[v] = LoadRow(x + static_cast<size_t>(v) * lanes);
    probe[v] = hn::Zero(d);
  }
  int64_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    const T* row = x + r * stride;
    if (r % 8 == 0)
      for (size_t v = 0; v < kVectors; ++v)
        Prefetch<2>(next + r / 8 * 2 * stride + static_cast<int64_t>(v * lanes), stride);
    for (int v = 0; v < kVectors; ++v) {
      const VF a = LoadRow(row + static_cast<size_t>(v) * lanes);
      const VF b = LoadRow(row + stride + static_cast<size_t>(v) * lanes);
      mn[v] = hn::Min(hn::Min(mn[v], a), b);
      mx[v] = hn::Max(hn::Max(mx[v], a), b);
      // If a value is not finite, neither is a product with it. A product of finite values may
      // overflow too, which costs only time.
      probe[v] = hn::MulAdd(a, b, probe[v]);
    }
  }
  if (r < rows) {
    for (int v = 0; v < kVectors; ++v) {
      const VF a = LoadRow(x + r * stride + static_cast<size_t>(v) * lanes);
      mn[v] = hn::Min(mn[v], a), mx[v] = hn::Max(mx[v], a);
      probe[v] = hn::MulAdd(a, a, probe[v]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(mn[v], d, columns.mn + j + v * lanes);
    hn::StoreU(mx[v], d, columns.mx + j + v * lanes);
    hn::StoreU(probe[v], d, columns.probe + j + v * lanes);
  }
}

// Lanes beyond `cols` or `limit` have the value `other`, which is in the group.
template <class T>
void StagedExtremes(const T* x, int64_t stride, int64_t rows, int64_t cols, int64_t limit,
                    float other, size_t j, Columns& columns) {
  const DF d;
  const size_t lanes = hn::Lanes(d);
  alignas(64) float block[8 * kLanes], pad[kLanes];
  for (size_t c = 0; c < lanes; ++c) {
    const int64_t at = static_cast<int64_t>(c);
    pad[c] = at < cols && at < limit ? ToFloat(x[at]) : other;
  }
  VF mn = hn::Load(d, pad), mx = mn, probe = hn::Zero(d);
  for (int64_t r = 0; r < rows; r += 8) {
    Stage(x + r * stride, stride, rows - r, cols, limit - r * stride, pad, block);
    for (size_t i = 0; i < 8; ++i) {
      const VF a = hn::Load(d, block + i * lanes);
      mn = hn::Min(mn, a), mx = hn::Max(mx, a);
      probe = hn::MulAdd(a, a, probe);
    }
  }
  hn::Store(mn, d, columns.mn + j);
  hn::Store(mx, d, columns.mx + j);
  hn::Store(probe, d, columns.probe + j);
}

// ---- Metadata of a unit. Returns true if some column needs staging (see Columns::half).
template <class T>
bool Parameters(const PackJob& job, const Unit& unit, const T* x, int64_t limit, Columns& columns) {
  const DF d;
  const DU du;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const GroupLayout& layout = job.layout;
  if (layout.shared) {
    VF mn = hn::Load(d, columns.mn), mx = hn::Load(d, columns.mx),
       probe = hn::Load(d, columns.probe);
    for (size_t j = lanes; j < cols; j += lanes) {
      mn = hn::Min(mn, hn::Load(d, columns.mn + j));
      mx = hn::Max(mx, hn::Load(d, columns.mx + j));
      probe = hn::Add(probe, hn::Load(d, columns.probe + j));
    }
    mn = hn::MinOfLanes(d, mn), mx = hn::MaxOfLanes(d, mx), probe = hn::SumOfLanes(d, probe);
    for (size_t j = 0; j < cols; j += lanes) {
      hn::Store(mn, d, columns.mn + j);
      hn::Store(mx, d, columns.mx + j);
      hn::Store(probe, d, columns.probe + j);
    }
  }
  const VF levels = hn::Set(d, static_cast<float>((1 << layout.bits) - 1));
  const VF zero = hn::Zero(d), one = hn::Set(d, 1.0f), safe = hn::Set(d, 0x1p126f);
  const VU low16 = hn::Set(du, 0xffffu), upper16 = hn::Set(du, 0xffff0000u);
  bool odd = false;
  for (size_t j = 0; j < cols; j += lanes) {
    const VF mn = hn::Add(hn::Load(d, columns.mn + j), zero);
    const VF mx = hn::Add(hn::Load(d, columns.mx + j), zero);
    const VF probe = hn::Load(d, columns.probe + j);
    const auto plain = hn::And(hn::And(hn::Gt(mn, hn::Neg(safe)), hn::Lt(mx, safe)),
                               hn::Eq(hn::Sub(probe, probe), zero));
    if (!hn::AllTrue(d, plain)) {
      odd = true;
      break;
    }
    const VU m = hn::BitCast(du, mn);
    const VU negative = hn::BitCast(du, hn::BroadcastSignBit(hn::BitCast(DI(), m)));
    const VF lo = hn::BitCast(d, hn::And(hn::Add(m, hn::And(negative, low16)), upper16));
    const VF range = hn::Sub(mx, lo);
    VU step = hn::And(hn::Add(hn::BitCast(du, hn::Div(range, levels)), low16), upper16);
    step = hn::BitCast(du, hn::Max(hn::BitCast(d, step), hn::Set(d, 0x1p-126f)));
    const auto low = hn::Lt(hn::Mul(levels, hn::BitCast(d, step)), range);
    step = hn::Add(step, hn::And(hn::BitCast(du, hn::VecFromMask(d, low)), hn::Set(du, 0x10000u)));
    hn::Store(lo, d, columns.base + j);
    hn::Store(hn::Div(one, hn::BitCast(d, step)), d, columns.inverse + j);
    hn::Store(hn::BitCast(du, lo), du, columns.lo + j);
    hn::Store(step, du, columns.scale + j);
  }
  if (odd) {
    int64_t nonfinite = 0;
    for (size_t j = 0; j < cols; ++j) {
      bool has_nan = false;
      if (!(columns.probe[j] - columns.probe[j] == 0)) {
        const int64_t begin = layout.shared ? 0 : static_cast<int64_t>(j);
        const int64_t end = layout.shared ? layout.cols : begin + 1;
        float mn = std::numeric_limits<float>::infinity(), mx = -mn;  // minima lose NaN's company
        for (int64_t r = 0; r < unit.rows; ++r)
          for (int64_t c = begin; c < end && r * layout.cols + c < limit; ++c) {
            const float value = ToFloat(x[r * layout.cols + c]);
            has_nan = has_nan || std::isnan(value);
            mn = std::min(mn, value), mx = std::max(mx, value);
          }
        columns.mn[j] = mn, columns.mx[j] = mx;
      }
      const GroupParameters p =
          group_parameters(columns.mn[j], columns.mx[j], has_nan, layout.bits);
      columns.half[j] = p.nonfinite ? 0 : p.half;
      columns.base[j] = p.nonfinite ? 0 : p.lo * p.half;
      columns.inverse[j] = 1.0f / p.step;
      std::memcpy(&columns.lo[j], &p.lo, 4);
      std::memcpy(&columns.scale[j], &p.scale, 4);
      if (j == 0 || !layout.shared) nonfinite += p.nonfinite;
    }
    for (size_t j = cols; j % lanes != 0; ++j) {  // computed, never stored
      columns.half[j] = columns.base[j] = columns.inverse[j] = 0;
      columns.lo[j] = columns.scale[j] = 0;
    }
    if (nonfinite > 0) job.nonfinite->add(nonfinite);
  }
  const int64_t metas = layout.metas();
  uint16_t* meta =
      reinterpret_cast<uint16_t*>(job.payload + layout.meta_offset(unit.group)) + unit.col0;
  for (size_t j = 0; j < (layout.shared ? 1 : cols); ++j) {
    meta[j] = static_cast<uint16_t>(columns.lo[j] >> 16);
    meta[static_cast<size_t>(metas) + j] = static_cast<uint16_t>(columns.scale[j] >> 16);
  }
  return odd;
}

// ---- Second pass: one block of 8 rows of `x` in a vector of columns, from column `j` on.
template <int kBits, bool kFull, class T>
HWY_INLINE void PackBlock(const T* x, int64_t x_stride, const GroupLayout& layout,
                          const Columns& columns, size_t j, const BlockWords* words, uint8_t* codes,
                          const BlockShape& at) {
  const DF d;
  VF dither[8];
  LoadDither<kBits != 0>(words, j, dither);
  const VF base = hn::LoadU(d, columns.base + j), inverse = hn::LoadU(d, columns.inverse + j);
  const VF top = hn::Set(d, static_cast<float>(1 << layout.bits));
  VU code[8];
  for (int r = 0; r < 8; ++r) {
    VF level = Fma(hn::Sub(LoadRow(x + r * x_stride), base), inverse, dither[r]);
    // At up to 8 bits t (1 + 3 * 2^-24) + u + 1 with u <= 1 - 2^-9 rounds below 2^bits + 1: nothing
    // to clamp.
    if constexpr (kBits == 0) level = hn::Min(level, top);
    code[r] = Truncate(level);
  }
  StoreCodes<kBits, kFull>(code, layout, codes + j, at);
}

// One function for all widths and dtypes, so that the compiler has less to do.
HWY_NOINLINE void PackStaged(const float* block, const GroupLayout& layout, const Columns& columns,
                             size_t j, const BlockWords* words, uint8_t* codes,
                             const BlockShape& at) {
  PackBlock<0, false>(block, static_cast<int64_t>(hn::Lanes(DF())), layout, columns, j, words,
                      codes, at);
}

// Copies a block that is short, of another dtype, or holds odd columns (see Columns::half).
template <class T>
HWY_NOINLINE void PrepareBlock(const T* x, int64_t stride, int64_t rows, int64_t cols,
                               int64_t limit, bool odd, const Columns& columns, size_t j,
                               float* block) {
  const size_t lanes = hn::Lanes(DF());
  alignas(64) float pad[kLanes];  // what gets code 0
  for (size_t c = 0; c < lanes; ++c) std::memcpy(&pad[c], &columns.lo[j + c], 4);
  Stage(x, stride, rows, cols, limit, pad, block);
  if (!odd) return;
  for (size_t i = 0; i < 8 * lanes; ++i) {
    const float half = columns.half[j + i % lanes];
    block[i] = half == 0 ? 0 : block[i] * half;
  }
}

// kBits: 0 for any width and rounding; else that width with stochastic rounding.
template <class T, int kBits>
HWY_INLINE void PackUnit(const PackJob& job, const Unit& unit, int64_t next_offset) {
  const DF d;
  const size_t lanes = hn::Lanes(d), cols = static_cast<size_t>(unit.cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols, offset = unit.row0 * stride + unit.col0;
  const T* x = static_cast<const T*>(job.x) + (offset - first_element(job));
  const T* next = static_cast<const T*>(job.x) + next_offset;
  // Elements from x on; only the row axis has a last row that ends early.
  const int64_t limit = layout.numel - offset;
  const bool ragged = layout.shared && limit < unit.rows * stride;
  constexpr bool kDirect = kHasVectors<T>;
  Columns columns;

  size_t j = 0;
  if constexpr (kDirect) {
    if (!ragged) {
      for (; j + 4 * lanes <= cols; j += 4 * lanes)
        Extremes<4>(x + j, stride, unit.rows, next + j, j, columns);
      for (; j + lanes <= cols; j += lanes)
        Extremes<1>(x + j, stride, unit.rows, next + j, j, columns);
      if (j < cols && cols >= lanes) {
        for (float* each : {columns.mn, columns.mx, columns.probe})
          hn::Store(hn::Zero(d), d, each + j);  // the lanes beyond `cols` are finite
        j = cols - lanes;
        Extremes<1>(x + j, stride, unit.rows, next + j, j, columns);
        j = cols;
      }
    }
  }
  for (; j < cols; j += lanes)
    StagedExtremes(x + j, stride, unit.rows, static_cast<int64_t>(cols - j),
                   limit - static_cast<int64_t>(j), ToFloat(x[0]), j, columns);
  const bool odd = Parameters(job, unit, x, limit, columns);

  uint8_t* codes = job.payload + layout.code_offset(unit.group) + unit.col0;
  const int64_t blocks = (unit.rows + 7) / 8;
  UnitWords draws(job.stream, unit.col0, unit.cols, unit.row0 / 8, blocks);
  const BlockWords* words = nullptr;
  const size_t vectors = VectorsOf(cols);
  for (int64_t b = 0; b < blocks; ++b) {
    if (job.stochastic) words = &draws.draw(b);
    const T* at = x + b * 8 * stride;
    size_t v = 0;
    if constexpr (kDirect) {
      if (!odd && !ragged && cols >= lanes && b * 8 + 8 <= unit.rows) {
        for (; v < vectors; ++v) {
          j = FirstColumn(v, cols);
          Prefetch<6>(next + (unit.rows / 8 * 2 + b * 6) * stride + j, stride);
          PackBlock<kBits, true>(at + j, stride, layout, columns, j, words, codes,
                                 {b, unit.rows, 0});
        }
      }
    }
    for (; v < vectors; ++v) {
      j = FirstColumn(v, cols);
      const int64_t cols_left = static_cast<int64_t>(cols - j);
      alignas(64) float block[8 * kLanes];
      PrepareBlock(at + j, stride, unit.rows - b * 8, cols_left,
                   limit - b * 8 * stride - static_cast<int64_t>(j), odd, columns, j, block);
      PackStaged(block, layout, columns, j, words, codes, {b, unit.rows, cols_left});
    }
  }
}

template <class T, int kBits>
void PackRange(const PackJob& job, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const Unit next = unit_at(job.layout, std::min(i + 1, end - 1));
    PackUnit<T, kBits>(job, unit_at(job.layout, i),
                       next.row0 * job.layout.cols + next.col0 - first_element(job));
  }
}

void PackUnits(const PackJob& job, int64_t begin, int64_t end) {
  WithKernel<1, 2, 3, 4, 5, 6, 7, 8>(
      job.dtype, job.stochastic ? job.layout.bits : 0, [&](auto zero, auto width) {
        PackRange<decltype(zero), decltype(width)::value>(job, begin, end);
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(PackUnits);

void quantize_kernel(Cpu, const PackJob& job) {
  const auto [first, last] = units_of_groups(job.layout, job.first, job.count);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(PackUnits)(job, begin, end);
  });
}

std::vector<std::string> simd_targets() {
  std::vector<std::string> names;
  for (int64_t target : hwy::SupportedAndGeneratedTargets())
    names.push_back(hwy::TargetName(target));
  return names;
}

void use_simd_target(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  int64_t chosen = 0;
  for (int64_t target : hwy::SupportedAndGeneratedTargets())
    if (name == hwy::TargetName(target)) chosen = target;
  hwy::SetSupportedTargetsForTest(chosen);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace frugal::compress
#endif
