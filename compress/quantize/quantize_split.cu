#include "compress/entropy/cuda_decode.h"
#include "compress/quantize/cuda_pack.h"

namespace frugal::compress {
namespace {

using namespace cuda;

template <class T, int kBits, bool kDithered>
__global__ void __launch_bounds__(kThreads) split_unpack_kernel(Unpacking u) {
  __shared__ StreamKeys keys;
  draw_keys_for<kDithered, kMayDraw<kBits>>(u, keys);
  const ThreadBlocks mine = blocks_of_thread(u);
  SplitColumns<kMayDraw<kBits>> columns;
  int64_t group = -1;
  for (uint32_t i = 0; i < mine.count; ++i) {
    const UnpackPlace at = place_at(u, mine.first + i, mine.column, mine.cols);
    BlockCodes<kBits> codes;
    with_flag(at.whole, [&]<bool kWhole>(std::bool_constant<kWhole>) {
      codes.template load<kWhole>(at.codes, u.layout.bits);
    });
    if (at.group != group) columns = read_columns<kMayDraw<kBits>>(u, at);
    group = at.group;
    uint32_t rows = kNeverDrawn;
    if (kMayDraw<kBits> && may_draw_rows(u.weights, u.layout.bits))
      rows = drawn_rows(keys, static_cast<uint32_t>(at.row / kRows),
                        static_cast<uint32_t>(at.column), columns.never);
    BlockWords words;
    if constexpr (kDithered)
      words.draw(keys, static_cast<uint32_t>(at.row / kRows), static_cast<uint32_t>(at.column));
    with_flag(at.whole && u.quads && !columns.has_nan,
              [&]<bool kWhole>(std::bool_constant<kWhole>) {
                BlockRows<T, kWhole> out(u, at, static_cast<T*>(u.x), u.quads);
#pragma unroll
                for (int r = 0; r < kRows; ++r) {
                  Quad<float> value;
#pragma unroll
                  for (int c = 0; c < kCols; ++c) {
                    bool one = false;
                    const bool drawn = kMayDraw<kBits> && is_drawn(rows, r, c);
                    float level = columns.level(codes.level(r, c), c, drawn, one);
                    if constexpr (kDithered) level = __fadd_rn(level, words.half_less_u(r, c));
                    value.at[c] = columns.value(level, c, drawn, one);
                  }
                  if (!kWhole && columns.odd) canonicalize(value);
                  out.store(value);
                }
              });
  }
}

// A byte of the mask is the bits of a column's block of 8 rows.
template <int kBits>
__global__ void __launch_bounds__(kThreads) split_sign_bits_kernel(Unpacking u) {
  __shared__ StreamKeys keys;
  draw_keys_for<false, kMayDraw<kBits>>(u, keys);
  const ThreadBlocks mine = blocks_of_thread(u);
  const float most = kTwoTo23 + static_cast<float>((1 << u.layout.bits) - 1);
  float first[kCols] = {};
  uint32_t never = kNeverDrawn;
  int64_t group = -1;
  for (uint32_t i = 0; i < mine.count; ++i) {
    const UnpackPlace at = place_at(u, mine.first + i, mine.column, mine.cols);
    if (at.group != group) {
      const Quad<float> range0 = load_meta(u, at, 1), range1 = load_meta(u, at, 3);
      never = kNeverDrawn;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        first[c] =
            kTwoTo23 + class_codes(range0.at[c], range1.at[c], u.weights, u.layout.bits).count[0];
        if (kMayDraw<kBits> && draws_rows(u.weights, u.layout.bits, range0.at[c], range1.at[c]))
          first[c] = kTwoTo23 + 1.0f, never &= ~(15u << (4 * c));
      }
    }
    group = at.group;
    BlockCodes<kBits> codes;
    with_flag(at.whole, [&]<bool kWhole>(std::bool_constant<kWhole>) {
      codes.template load<kWhole>(at.codes, u.layout.bits);
    });
    uint32_t rows = kNeverDrawn;
    if (kMayDraw<kBits> && may_draw_rows(u.weights, u.layout.bits))
      rows = drawn_rows(keys, static_cast<uint32_t>(at.row / kRows),
                        static_cast<uint32_t>(at.column), never);
    uint32_t bits = 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const bool drawn = kMayDraw<kBits> && is_drawn(rows, r, c);
        if (codes.level(r, c) >= (drawn ? most : first[c])) bits |= 1u << (8 * c + r);
      }
    const int64_t byte = (at.row * u.layout.cols - u.begin) / kRows + at.column;
    store_bytes(static_cast<uint8_t*>(u.x) + byte, bits, at.codes.cols, u.quads);
  }
}

}  // namespace

void move_bits_kernel(Cuda, const MovedBits& moved, int64_t bytes) { cuda::for_each(bytes, moved); }

void split_quantize_kernel(Cuda, const PackJob& job) { pack<2>(job); }

void split_dequantize_kernel(Cuda, const UnpackJob& job) {
  if (job.begin >= job.end) return;
  Unpacking u = unpacking(job);
  with_packable(job.dtype, [&]<class T>(T) {
    u.quads = is_quadable<T>(job.x, job.layout);
    with_width(job.layout.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
      if constexpr (kBits != 1)  // no width of split groups
        job.dithered ? launch_blocks(split_unpack_kernel<T, kBits, true>, u, u)
                     : launch_blocks(split_unpack_kernel<T, kBits, false>, u, u);
    });
  });
}

void split_sign_kernel(Cuda, const UnpackJob& job) {
  if (job.begin >= job.end) return;
  Unpacking u = unpacking(job);
  u.quads = is_quadable<uint8_t>(job.x, job.layout);
  with_width(job.layout.bits, [&]<int kBits>(std::integral_constant<int, kBits>) {
    if constexpr (kBits != 1) launch_blocks(split_sign_bits_kernel<kBits>, u, u);
  });
}

}  // namespace frugal::compress
