// Unpacks in one pass. Memory writes bound its time, or Philox if rounding is dithered.
#include "compress/quantize/quantize_kernels.h"
#include "core/parallel.h"
#include "core/vector_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/quantize/quantize_unpack.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "compress/quantize/decode-inl.h"
#include "compress/quantize/staging-inl.h"

HWY_BEFORE_NAMESPACE();
namespace frugal::compress {
namespace HWY_NAMESPACE {

// The rows of `unit` that lie in [job.begin, job.end).
template <class T, int kBits>
HWY_INLINE void UnpackUnit(const UnpackJob& job, const Unit& unit, bool stream) {
  const size_t cols = static_cast<size_t>(unit.cols), vectors = VectorsOf(cols);
  const GroupLayout& layout = job.layout;
  const int64_t stride = layout.cols, offset = unit.row0 * stride + unit.col0 - job.begin;
  const int64_t limit = job.end - job.begin;
  UnitDecoder<kBits, false> decoder(job, unit);
  const BlockRange blocks = blocks_in(layout, unit, job.begin, job.end);
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const int64_t here = std::min<int64_t>(8, unit.rows - b * 8);
    decoder.enter(b);
    for (size_t v = 0; v < vectors; ++v) {
      const size_t j = FirstColumn(v, cols);
      VF value[8];
      decoder.decode(j, [&](int r, VF x, MF) HWY_ATTR { value[r] = x; });
      const int64_t at = offset + b * 8 * stride + static_cast<int64_t>(j);
      StoreBlock(value, stride, here, static_cast<int64_t>(cols - j), limit - at, stream,
                 static_cast<T*>(job.x) + at);
    }
  }
}

void UnpackUnits(const UnpackJob& job, int64_t begin, int64_t end) {
  WithKernel<1, 2, 3, 4, 5, 6, 7, 8>(job.dtype, job.layout.bits, [&](auto zero, auto width) {
    using T = decltype(zero);
    const bool stream = Streams<T>(job);
    for (int64_t i = begin; i < end; ++i)
      UnpackUnit<T, decltype(width)::value>(job, unit_at(job.layout, i), stream);
    if (stream) hwy::FlushStream();
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::compress
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::compress {

HWY_EXPORT(UnpackUnits);

void dequantize_kernel(Cpu, const UnpackJob& job) {
  const auto [first, last] = units_in(job.layout, job.begin, job.end);
  parallel_for(first, last, grain_of(job.layout), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(UnpackUnits)(job, begin, end);
  });
}

}  // namespace frugal::compress
#endif
