// Unpack on CUDA: a thread rebuilds 8 rows of 4 columns from whole words of codes, without waiting
// for others; a warp writes up to 512 bytes of a row at once. For .cu files.
#pragma once
#include "compress/quantize/cuda_codes.h"
#include "core/finite.h"

namespace frugal::compress::cuda {

struct Unpacking {
  const uint8_t* payload;
  void* x;  // of element `begin`
  GroupLayout layout;
  int64_t begin, end;
  SplitWeights weights;
  const float* affine;
  StreamName stream;
  int64_t strips = 0;
  int across = 0;                     // threads side by side
  uint32_t first = 0;                 // block of 8 rows
  int64_t blocks = 0;                 // in the range
  bool quads = false, words = false;  // whole accesses to x, to codes
};

// The keys of dithered rounding, in shared memory. Every thread comes here, before find_place().
__device__ __forceinline__ void draw_keys(const Unpacking& u, StreamKeys& keys) {
  if (threadIdx.x == 0) keys = stream_keys(u.stream, u.stream.advance->steps);
  __syncthreads();
}

// Where a thread's block lies.
struct UnpackPlace {
  int64_t row;  // of the view
  int rows;     // of it that there are, up to 8
  int64_t column, group;
  CodeBlock codes;
};

// The block of 8 rows number `block`, of `count` columns from `column` on.
__device__ __forceinline__ UnpackPlace place_at(const Unpacking& u, uint32_t block, int64_t column,
                                                int count) {
  const GroupLayout& layout = u.layout;
  const auto group_blocks = static_cast<uint32_t>(layout.group_rows / kRows);
  UnpackPlace at;
  at.row = int64_t{block} * kRows;
  at.column = column;
  at.group = block / group_blocks;
  at.codes = {const_cast<uint8_t*>(u.payload) + layout.code_offset(at.group) + column,
              static_cast<int>(layout.cols),
              static_cast<int>(layout.rows_of(at.group)),
              static_cast<int>(block % group_blocks),
              count,
              u.words};
  const int rows = at.codes.rows - at.codes.block * kRows;
  at.rows = rows < kRows ? rows : kRows;
  return at;
}

// The thread's own. Returns whether there is something to do.
__device__ __forceinline__ bool find_place(const Unpacking& u, UnpackPlace& at) {
  const GroupLayout& layout = u.layout;
  const auto strips = static_cast<uint32_t>(u.strips);
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t down = static_cast<int>(blockDim.x) / u.across;
  const int64_t local = int64_t{blockIdx.x / strips} * down + thread / u.across;
  const int64_t column = (int64_t{blockIdx.x % strips} * u.across + thread % u.across) * kCols;
  if (local >= u.blocks || thread / u.across >= down || column >= layout.cols) return false;
  const int64_t left = layout.cols - column;
  at = place_at(u, u.first + static_cast<uint32_t>(local), column,
                static_cast<int>(left < kCols ? left : kCols));
  return true;
}

// A metadata word of each column, as f32.
__device__ __forceinline__ Quad<float> load_meta(const Unpacking& u, const UnpackPlace& at,
                                                 int which) {
  const GroupLayout& layout = u.layout;
  const auto* from = reinterpret_cast<const uint16_t*>(u.payload + layout.meta_offset(at.group)) +
                     which * layout.metas();
  Quad<float> out;
  if (layout.shared) {
    const float all = float_of(uint32_t{*from} << 16);
    return {{all, all, all, all}};
  }
  from += at.column;
  if (u.words) {  // 8-byte aligned, as columns are
    const auto four = *reinterpret_cast<const uint2*>(from);
    return {{float_of(four.x << 16), float_of(four.x & 0xffff0000u), float_of(four.y << 16),
             float_of(four.y & 0xffff0000u)}};
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    out.at[c] = c < at.codes.cols ? float_of(uint32_t{from[c]} << 16) : 0.0f;
  return out;
}

// Row r of the block, where it is in range.
template <class T>
__device__ __forceinline__ void store_row(const Unpacking& u, const UnpackPlace& at, int r,
                                          const Quad<float>& value) {
  const int64_t cols = u.layout.cols, index = (at.row + r) * cols + at.column;
  if (r >= at.rows || index >= u.end) return;
  T* to = static_cast<T*>(u.x) + (index - u.begin);
  if (u.quads && index + kCols <= u.end) {
    ops::cuda::put<kCols>(to, value);
    return;
  }
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if (c < at.codes.cols && index + c < u.end) to[c] = store<T>(value.at[c]);
}

// What a group that is not finite gives, whatever NaN arithmetic would make.
__device__ __forceinline__ float canonical(float x) {
  return !is_nan(x) ? x : float_of(uint32_t{kNonfiniteBits} << 16);
}
__device__ __forceinline__ bool has_nan(const Quad<float>& x) {
  bool any = false;
#pragma unroll
  for (int c = 0; c < kCols; ++c) any = any || is_nan(x.at[c]);
  return any;
}
__device__ __forceinline__ void canonicalize(Quad<float>& x) {
#pragma unroll
  for (int c = 0; c < kCols; ++c) x.at[c] = canonical(x.at[c]);
}

// PackedPass::Variance of the columns of a block, not split.
__device__ __forceinline__ Quad<float> variances(const Unpacking& u, const UnpackPlace& at,
                                                 bool dithered) {
  const Quad<float> lo = load_meta(u, at, 0), scale = load_meta(u, at, 1);
  Quad<float> value;
#pragma unroll
  for (int c = 0; c < kCols; ++c) {
    const float step = scale.at[c];
    const float parts = dithered && takes_away(lo.at[c], step) ? 12.0f : 6.0f;
    value.at[c] = __fdiv_rn(__fmul_rn(step, step), parts);
  }
  if (has_nan(value)) canonicalize(value);
  return value;
}

inline Unpacking unpacking(const UnpackJob& job) {
  const GroupLayout& layout = job.layout;
  FRUGAL_ASSERT(layout.cols < int64_t{1} << 31);
  const int64_t quads = (layout.cols + kCols - 1) / kCols, block = layout.cols * kRows;
  Unpacking u{job.payload, job.x,       layout,     job.begin,
              job.end,     job.weights, job.affine, StreamName(job.stream)};
  u.words = is_quadable<uint8_t>(job.payload, layout);
  u.strips = (quads + kWarp - 1) / kWarp;
  u.across = static_cast<int>((quads + u.strips - 1) / u.strips);
  u.first = static_cast<uint32_t>(job.begin / block);
  u.blocks = (job.end - job.begin + block - 1) / block;
  return u;
}

// A thread for each block of 8 rows of 4 columns: find_place().
template <class Kernel, class... Arguments>
void launch_blocks(const Kernel& kernel, const Unpacking& u, const Arguments&... arguments) {
  const int64_t down = kThreads / u.across, blocks = (u.blocks + down - 1) / down * u.strips;
  launch(kernel, {as_blocks(blocks), kThreads}, arguments...);
}

}  // namespace frugal::compress::cuda
