#include "compress/entropy/cuda_decode.h"
#include "compress/quantize/cuda_pack.h"

namespace frugal::compress {
namespace {

using namespace cuda;

template <class T, int kBits, bool kDithered>
__global__ void split_unpack_kernel(Unpacking u) {
  __shared__ StreamKeys keys;
  if constexpr (kDithered) draw_keys(u, keys);
  UnpackPlace at;
  if (!find_place(u, at)) return;
  const SplitColumns columns = read_columns(u, at);
  uint32_t code[kRows][kCols];
  load_codes<kBits>(code, u.layout.bits, at.codes);
  BlockWords words;
  if constexpr (kDithered)
    words.draw(keys, static_cast<uint32_t>(at.row / kRows), static_cast<uint32_t>(at.column));
  bool odd = false;
#pragma unroll
  for (int c = 0; c < kCols; ++c) odd = odd || columns.lo[1][c] != columns.lo[1][c];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    Quad<float> value;
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      float level = float_of(code[r][c]) - kTwoTo23;
      const bool one = level >= columns.first[c];
      level -= one ? columns.first[c] : 0.0f;  // of integers: exact
      if constexpr (kDithered) level = __fadd_rn(level, words.half_less_u(r, c));
      value.at[c] = __fmaf_rn(level, one ? columns.step[1][c] : columns.step[0][c],
                              one ? columns.lo[1][c] : columns.lo[0][c]);
    }
    if (odd) canonicalize(value);
    store_row<T>(u, at, r, value);
  }
}

// A byte of the mask is the bits of a column's block of 8 rows.
template <int kBits>
__global__ void split_sign_bits_kernel(Unpacking u) {
  UnpackPlace at;
  if (!find_place(u, at)) return;
  const Quad<float> range0 = load_meta(u, at, 1), range1 = load_meta(u, at, 3);
  uint32_t code[kRows][kCols];
  load_codes<kBits>(code, u.layout.bits, at.codes);
  uint32_t bits = 0;
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const ClassCodes codes = class_codes(range0.at[c], range1.at[c], u.weights, u.layout.bits);
    const uint32_t first = __float_as_uint(kTwoTo23 + codes.count[0]);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (code[r][c] >= first) bits |= 1u << (8 * c + r);
  }
  const int64_t byte = (at.row * u.layout.cols - u.begin) / kRows + at.column;
  store_bytes(static_cast<uint8_t*>(u.x) + byte, bits, at.codes.cols, u.quads);
}

}  // namespace

void move_bits_kernel(Cuda, const MovedBits& moved, int64_t bytes) { cuda::for_each(bytes, moved); }

void split_quantize_kernel(Cuda, const PackJob& job) { pack<2>(job); }

void split_dequantize_kernel(Cuda, const UnpackJob& job) {
  check_dtype(job.dtype);
  if (job.begin >= job.end) return;
  Unpacking u = unpacking(job);
  with_activation(job.dtype, [&]<class T>(T) {
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
