#include "compress/quantize/cuda_pack.h"
#include "compress/quantize/cuda_unpack.h"

namespace frugal::compress {
namespace {

using namespace cuda;

template <class T, int kBits, bool kDithered>
__global__ void __launch_bounds__(kThreads) unpack_kernel(Unpacking u) {
  __shared__ StreamKeys keys;
  if constexpr (kDithered) draw_keys(u, keys);
  const ThreadBlocks mine = blocks_of_thread(u);
  for (uint32_t i = 0; i < mine.count; ++i) {
    const UnpackPlace at = place_at(u, mine.first + i, mine.column, mine.cols);
    BlockCodes<kBits> codes;
    with_flag(at.whole, [&]<bool kWhole>(std::bool_constant<kWhole>) {
      codes.template load<kWhole>(at.codes, u.layout.bits);
    });
    const Quad<float> lo = load_meta(u, at, 0), scale = load_meta(u, at, 1);
    BlockWords words;
    float taken[kCols];
    if constexpr (kDithered) {
      words.draw(keys, static_cast<uint32_t>(at.row / kRows), static_cast<uint32_t>(at.column));
#pragma unroll
      for (int c = 0; c < kCols; ++c) taken[c] = takes_away(lo.at[c], scale.at[c]) ? 1.0f : 0.0f;
    }
    const bool odd = has_nan(lo);
    with_flag(at.whole && u.quads && !odd, [&]<bool kWhole>(std::bool_constant<kWhole>) {
      BlockRows<T, kWhole> out(u, at, static_cast<T*>(u.x), u.quads);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        Quad<float> value;
#pragma unroll
        for (int c = 0; c < kCols; ++c) {
          float level = codes.level(r, c) - kTwoTo23;
          if constexpr (kDithered) level = __fmaf_rn(words.half_less_u(r, c), taken[c], level);
          value.at[c] = __fmaf_rn(level, scale.at[c], lo.at[c]);
        }
        if (!kWhole && odd) canonicalize(value);
        out.store(value);
      }
    });
  }
}

template <class T>
__global__ void spread_variance_kernel(Unpacking u, bool dithered) {
  const ThreadBlocks mine = blocks_of_thread(u);
  for (uint32_t i = 0; i < mine.count; ++i) {
    const UnpackPlace at = place_at(u, mine.first + i, mine.column, mine.cols);
    const Quad<float> value = variances(u, at, dithered);
    BlockRows<T, false> out(u, at, static_cast<T*>(u.x), u.quads);
    for (int r = 0; r < kRows; ++r) out.store(value);
  }
}

}  // namespace

void quantize_kernel(Cuda, const PackJob& job) { pack<1>(job); }

void dequantize_kernel(Cuda, const UnpackJob& job) {
  if (job.begin >= job.end) return;
  Unpacking u = unpacking(job);
  with_packable(job.dtype, [&]<class T>(T) {
    u.quads = is_quadable<T>(job.x, job.layout);
    with_width(job.layout.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
      job.dithered ? launch_blocks(unpack_kernel<T, kBits, true>, u, u)
                   : launch_blocks(unpack_kernel<T, kBits, false>, u, u);
    });
  });
}

void variance_kernel(Cuda, const UnpackJob& job) {
  Unpacking u = unpacking(job);
  with_activation(job.dtype, [&]<class T>(T) {
    u.quads = is_quadable<T>(job.x, job.layout);
    launch_blocks(spread_variance_kernel<T>, u, u, job.dithered);
  });
}

}  // namespace frugal::compress
