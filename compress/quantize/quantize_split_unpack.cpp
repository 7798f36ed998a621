// Unpacks split groups, or their signs alone, in one pass. Memory writes bound its time, or Philox
// if rounding is dithered.
#include "compress/quantize/quantize_kernels.h"
#include "core/parallel.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize/quantize_split_unpack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/decode-inl.h"
#include "compress/quantize/staging-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// What is done with the values of class 1; those of class 0 are 0 in the last two.
enum class Mapping { none, affine, affine_and_residual };

// The rows of `unit` that lie in [job.begin, job.end).
template <class T, int kBits, Mapping kMapping>
HWY_INLINE void SplitUnpackUnit(const UnpackJob& job, const Unit& unit, bool stream) {
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols, offset = unit.row0 * stride + unit.col0 - job.begin;
  const int64_t limit = job.end - job.begin;
  UnitDecoder<kBits, true, kMapping != Mapping::none> decoder(job, unit);
  const BlockRange blocks = blocks_in(layout, unit, job.begin, job.end);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    decoder.enter(b);
    for (size_t v = 0; v < vectors; ++v) {
      const size_t j = FirstColumn(v, cols);
      const int64_t cols_left = static_cast<int64_t>(cols - j);
      const int64_t at = offset + b * 8 * stride + static_cast<int64_t>(j);
      VF value[8];
      if constexpr (kMapping == Mapping::affine_and_residual) {
        const T* residual = static_cast<const T*>(job.residual) + at;
        if (cols_left < lanes || limit - at < 7 * stride + lanes) {
          alignas(64) float block[8 * kLanes];
          const float pad[kLanes] = {};
          Stage(residual, stride, 8, cols_left, limit - at, pad, block);
          VF decoded[8];
          MF class1[8];
          decoder.decode_block(j, decoded, class1);
          for (int r = 0; r < 8; ++r)
            value[r] =
                hn::IfThenElseZero(class1[r], hn::Add(decoded[r], LoadRow(block + r * lanes)));
        } else {
          decoder.decode(j, [&](int r, VF x, MF class1) HWY_ATTR {
            value[r] = hn::IfThenElseZero(class1, hn::Add(x, LoadRow(residual + r * stride)));
          });
        }
      } else {
        decoder.decode(j, [&](int r, VF x, MF) HWY_ATTR { value[r] = x; });
      }
      StoreBlock(value, stride, 8, cols_left, limit - at, stream, static_cast<T*>(job.x) + at);
    }
  }
}

template <int kBits>
HWY_INLINE void SignUnit(const UnpackJob& job, const Unit& unit) {
  const DU du;
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols;
  uint8_t* mask = static_cast<uint8_t*>(job.x) + unit.col0;
  UnitCodes<kBits> codes(job, unit);
  ColumnSteps steps;
  ReadSteps<true>(job, unit, steps);
  const bool may_draw = may_draw_rows(job.weights, layout.bits);
  DrawnRows drawn(job.stream, unit.col0, may_draw);
  const BlockRange blocks = blocks_in(layout, unit, job.begin, job.end);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    drawn.enter(unit.row0 / 8 + b);
    for (size_t v = 0; v < vectors; ++v) {
      const size_t j = FirstColumn(v, cols);
      VU code[8];
      codes.load(b, j, code);
      const VU first = hn::LoadU(du, steps.first + j);
      VU byte = hn::Zero(du);
      if (may_draw) {
        const VU rows = drawn.rows(j, steps.draws);
        const VU drawn_first = hn::LoadU(du, steps.drawn_first + j);
        for (int r = 0; r < 8; ++r) {
          const auto now = hn::RebindMask(du, IsDrawn(rows, r));
          const MF one = IsClass1(code[r], LastBefore(hn::IfThenElse(now, drawn_first, first)));
          byte = MaskedOr(one, byte, hn::Set(du, 1u << r));
        }
      } else {
        const VI last = LastBefore(first);
        for (int r = 0; r < 8; ++r)
          byte = MaskedOr(IsClass1(code[r], last), byte, hn::Set(du, 1u << r));
      }
      uint8_t* to =
          mask + (unit.row0 / 8 + b - job.begin / stride / 8) * stride + static_cast<int64_t>(j);
      StoreBytes(byte, static_cast<int64_t>(cols - j), to);
    }
  }
}

template <class T, int kBits, Mapping kMapping>
void SplitUnpackRange(const UnpackJob& job, int64_t begin, int64_t end) {
  const bool stream = Streams<T>(job);
  for (int64_t i = begin; i < end; ++i)
    SplitUnpackUnit<T, kBits, kMapping>(job, unit_at(job.layout, i), stream);
  if (stream) hwy::FlushStream();
}

void SplitUnpackUnits(const UnpackJob& job, int64_t begin, int64_t end) {
  WithKernel<2, 3, 4, 5, 6, 7, 8>(job.dtype, job.layout.bits, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kBits = decltype(width)::value;
    if (job.affine == nullptr) return SplitUnpackRange<T, kBits, Mapping::none>(job, begin, end);
    if constexpr (kHasVectors<T>)
      if (job.residual != nullptr)
        return SplitUnpackRange<T, kBits, Mapping::affine_and_residual>(job, begin, end);
    SplitUnpackRange<T, kBits, Mapping::affine>(job, begin, end);
  });
}

// Signs are bits, so one element type serves for all.
void SplitSignUnits(const UnpackJob& job, int64_t begin, int64_t end) {
  WithKernel<2, 3, 4, 5, 6, 7, 8>(DType::f32, job.layout.bits, [&](auto, auto width) {
    for (int64_t i = begin; i < end; ++i)
      SignUnit<decltype(width)::value>(job, unit_at(job.layout, i));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(SplitUnpackUnits);
HWY_EXPORT(SplitSignUnits);

void split_dequantize_kernel(Cpu, const UnpackJob& job) {
  const auto [first, last] = units_in(job.layout, job.begin, job.end);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SplitUnpackUnits)(job, begin, end);
  });
}

void split_sign_kernel(Cpu, const UnpackJob& job) {
  const auto [first, last] = units_in(job.layout, job.begin, job.end);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(SplitSignUnits)(job, begin, end);
  });
}

}  // namespace frugal::compress
#endif
