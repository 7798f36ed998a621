// Passes with coefficients by column over codes (autograd/packed_pass.h), on the CPU. A block of 8
// rows is unpacked into registers and used there, so the unpacked tensor and its mask are never
// written. The values are bit for bit those that unpacking writes.
#include <algorithm>
#include <cstring>

#include "compress/quantize/fused_kernels.h"
#include "core/parallel.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize/quantize_columns.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/decode-inl.h"
#include "compress/quantize/staging-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// A vector of columns of a unit. The last one may begin within the one before: `skip` of its
// columns were done there.
struct ColumnVector {
  size_t first, skip;
};
HWY_INLINE ColumnVector column_vector(size_t v, size_t cols) {
  const size_t first = FirstColumn(v, cols);
  return {first, v * hn::Lanes(DF()) - first};
}
template <class T>
HWY_INLINE void StoreNew(VF value, size_t skip, T* to) {
  const DF d;
  if (skip == 0)
    StoreRow(value, to);
  else
    StoreRow(hn::IfThenElse(hn::FirstN(d, skip), LoadRow(to), value), to);
}

// A decoded value as unpacking writes it.
template <class T>
HWY_INLINE VF Written(VF x) {
  if constexpr (std::is_same_v<T, BFloat16>)
    return ops::simd::HWY_NAMESPACE::rounded_to_bf16(DF(), x);
  return x;
}

// Prefetches what the next 8 rows have in the lines of vector `v`. A line of bf16 holds two
// vectors, each of which prefetches it for half of the rows. Rows lie far apart, so the processor
// would not do it.
template <class T>
HWY_INLINE void PrefetchNext(const T* y, int64_t c, size_t v) {
  constexpr int kRows = sizeof(T) == sizeof(float) ? 8 : 4;
  Prefetch<kRows>(y + (8 + static_cast<int64_t>(v) * kRows % 8) * c, c);
}

// The mask of a vector of columns, a bit for each of 8 rows. Without a mask all rows are kept.
HWY_INLINE VU LoadMask(const uint8_t* mask, int64_t at) {
  return mask == nullptr ? hn::Set(DU(), 0xffu) : LoadBytes(mask + at, kLanes);
}

// Row r of y where its bit is set, else 0. kInCodes: the bits are the classes of the codes.
template <bool kInCodes>
HWY_INLINE VF KeptOf(VF y, MF class1, VU mask, int r) {
  if constexpr (kInCodes) return hn::IfThenElseZero(class1, y);
  return hn::IfThenElseZero(hn::RebindMask(DF(), hn::TestBit(mask, hn::Set(DU(), 1u << r))), y);
}

// Calls f as UnitDecoder::decode does, for the first `rows` rows.
template <class Decoder, class F>
HWY_INLINE void DecodeRows(const Decoder& decoder, size_t j, int64_t rows, F f) {
  if (HWY_LIKELY(rows == 8)) return decoder.decode(j, f);
  VF value[8];
  MF class1[8];
  decoder.decode_block(j, value, class1);
  for (int r = 0; r < static_cast<int>(rows); ++r) f(r, value[r], class1[r]);
}

// Plain pointers of a ColumnSumsJob. A call of Tensor::data() between vectors would save all of
// them.
template <class T>
struct SumPointers {
  const T* y;
  const float* center;
  T* out;  // null where nothing is written
  float* partial;
  const uint8_t* mask;

  explicit SumPointers(const ColumnSumsJob& job)
      : y(job.y.data<T>()),
        center(job.center.data<float>()),
        out(job.out.defined() ? job.out.mut<T>() : nullptr),
        partial(job.partial.mut<float>()),
        mask(job.mask.defined() ? job.mask.data<uint8_t>() : nullptr) {}
};

// Rows [begin, end) of the view, which lie in `unit`.
template <class T, int kBits, bool kSplit, bool kInCodes>
HWY_INLINE void SumUnit(const ColumnSumsJob& job, const SumPointers<T>& of,
                        UnitDecoder<kBits, kSplit>& decoder, const Unit& unit, int64_t begin,
                        int64_t end) {
  const DF d;
  const int64_t c = job.codes.layout.cols, first = job.codes.begin / c;
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  for (int64_t row = begin; row < end; row += 8) {
    const int64_t rows = std::min<int64_t>(8, end - row), at = (row - first) * c + unit.col0;
    decoder.enter((row - unit.row0) / 8);
    float* const sums = of.partial + (row - first) / job.chunk_rows * 2 * c + unit.col0;
    for (size_t v = 0; v < vectors; ++v) {
      const ColumnVector vector = column_vector(v, cols);
      const int64_t here = at + static_cast<int64_t>(vector.first);
      VU mask = hn::Zero(DU());
      if constexpr (!kInCodes)
        mask = LoadMask(of.mask,
                        (row - first) / 8 * c + unit.col0 + static_cast<int64_t>(vector.first));
      const VF center = hn::LoadU(d, of.center + unit.col0 + vector.first);
      VF sum = hn::LoadU(d, sums + vector.first), product = hn::LoadU(d, sums + c + vector.first);
      const T* const y = of.y + here;
      PrefetchNext(y, c, v);
      T* const out = of.out == nullptr ? nullptr : of.out + here;
      DecodeRows(decoder, vector.first, rows, [&](int r, VF x, MF class1) HWY_ATTR {
        const VF kept = KeptOf<kInCodes>(LoadRow(y + r * c), class1, mask, r);
        if (out != nullptr) ops::simd::HWY_NAMESPACE::store_unrounded(d, kept, out + r * c);
        sum = hn::Add(sum, kept);
        product = hn::MulAdd(kept, hn::Sub(Written<T>(x), center), product);
      });
      StoreNew(sum, vector.skip, sums + vector.first);
      StoreNew(product, vector.skip, sums + c + vector.first);
    }
  }
}

template <class T, int kBits, bool kSplit, bool kInCodes>
HWY_INLINE void CombineUnit(const CombineJob& job, UnitDecoder<kBits, kSplit>& decoder,
                            const Unit& unit) {
  const DF d;
  const GroupLayout& layout = job.codes.layout;
  const int64_t c = layout.cols, first = job.codes.begin / c, last = job.codes.end / c;
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  const BlockRange blocks = blocks_in(layout, unit, job.codes.begin, job.codes.end);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t row = unit.row0 + b * 8;
    const int64_t rows = std::min({int64_t{8}, unit.rows - b * 8, last - row});
    decoder.enter(b);
    for (size_t v = 0; v < vectors; ++v) {
      const ColumnVector vector = column_vector(v, cols);
      const int64_t column = unit.col0 + static_cast<int64_t>(vector.first);
      VU mask = hn::Zero(DU());
      if constexpr (!kInCodes) mask = LoadMask(job.mask, (row - first) / 8 * c + column);
      const float* const k = job.k + column;
      const VF center = hn::LoadU(d, k), of_y = hn::LoadU(d, k + c);
      const VF of_x = hn::LoadU(d, k + 2 * c), constant = hn::LoadU(d, k + 3 * c);
      const T* const y = static_cast<const T*>(job.y) + (row - first) * c + column;
      PrefetchNext(y, c, v);
      T* const out = static_cast<T*>(job.codes.x) + (row - first) * c + column;
      DecodeRows(decoder, vector.first, rows, [&](int r, VF x, MF class1) HWY_ATTR {
        const VF kept = KeptOf<kInCodes>(LoadRow(y + r * c), class1, mask, r);
        const VF of_codes = hn::MulAdd(hn::Sub(Written<T>(x), center), of_x, constant);
        StoreNew(hn::MulAdd(kept, of_y, of_codes), vector.skip, out + r * c);
      });
    }
  }
}

// Calls f(zero, width, split, in_codes): zero has the element type, the others are constants.
// Widths without kernels of their own share one. REQUIRES: f32 or bf16; a mask is in codes of
// split groups.
template <class F>
void WithCodes(const UnpackJob& job, bool mask_in_codes, F&& f) {
  FRUGAL_ASSERT(job.layout.split || !mask_in_codes);
  WithKernel<2, 3, 4, 8>(job.dtype, job.layout.bits, [&](auto zero, auto width) {
    if constexpr (kHasVectors<decltype(zero)>) {
      if (mask_in_codes)
        f(zero, width, std::true_type(), std::true_type());
      else if (job.layout.split)
        f(zero, width, std::true_type(), std::false_type());
      else
        f(zero, width, std::false_type(), std::false_type());
    }
  });
}

void SumRows(const ColumnSumsJob& job, int64_t begin, int64_t end) {
  const GroupLayout& layout = job.codes.layout;
  WithCodes(
      job.codes, job.mask_in_codes, [&](auto zero, auto width, auto split, auto in_codes) HWY_ATTR {
        using T = decltype(zero);
        const SumPointers<T> of(job);
        const auto [first, last] = units_in(layout, begin * layout.cols, end * layout.cols);
        for (int64_t i = first; i < last; ++i) {
          const Unit unit = unit_at(layout, i);
          UnitDecoder<decltype(width)::value, decltype(split)::value> decoder(job.codes, unit);
          SumUnit<T, decltype(width)::value, decltype(split)::value, decltype(in_codes)::value>(
              job, of, decoder, unit, std::max(begin, unit.row0),
              std::min(end, unit.row0 + unit.rows));
        }
      });
}

void CombineUnits(const CombineJob& job, int64_t begin, int64_t end) {
  WithCodes(
      job.codes, job.mask_in_codes, [&](auto zero, auto width, auto split, auto in_codes) HWY_ATTR {
        for (int64_t i = begin; i < end; ++i) {
          const Unit unit = unit_at(job.codes.layout, i);
          UnitDecoder<decltype(width)::value, decltype(split)::value> decoder(job.codes, unit);
          CombineUnit<decltype(zero), decltype(width)::value, decltype(split)::value,
                      decltype(in_codes)::value>(job, decoder, unit);
        }
      });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(SumRows);
HWY_EXPORT(CombineUnits);

// The rows of a chunk are added in order, whatever the number of threads.
void column_sums_codes_kernel(Cpu, const ColumnSumsJob& job) {
  const int64_t c = job.codes.layout.cols, first = job.codes.begin / c, last = job.codes.end / c;
  parallel_for(0, job.partial.size(0), 1, [&](int64_t begin, int64_t end) {
    std::fill_n(job.partial.mut<float>() + begin * 2 * c, (end - begin) * 2 * c, 0.0f);
    HWY_DYNAMIC_DISPATCH(SumRows)
    (job, first + begin * job.chunk_rows, std::min(last, first + end * job.chunk_rows));
  });
}

void combine_codes_kernel(Cpu, const CombineJob& job) {
  const auto [first, last] = units_in(job.codes.layout, job.codes.begin, job.codes.end);
  parallel_for(first, last, grain_of(job.codes.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(CombineUnits)(job, begin, end);
  });
}

}  // namespace frugal::compress
#endif
