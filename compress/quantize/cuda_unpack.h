// Unpack on CUDA: a thread rebuilds blocks of 8 rows of 4 columns from whole words of codes,
// without waiting for others; a warp writes up to 512 bytes of a row at once. Large tensors give a
// thread several blocks below one another, so that it rarely reads what belongs to a group. For .cu
// files.
#pragma once
#include "compress/quantize/cuda_codes.h"
#include "core/cuda/divisor.h"
#include "core/finite.h"

namespace frugal::compress::cuda {

struct Unpacking {
  const uint8_t* payload;
  void* x;  // points to element `begin`
  GroupLayout layout;
  int64_t begin, end;
  SplitWeights weights;
  const float* affine;
  StreamName stream;
  int64_t strips = 0;  // number of blocks of threads side by side
  int across = 0;      // threads of a block that lie side by side
  uint32_t tall = 0;   // threads of a block that lie above one another
  uint32_t deep = 1;   // number of blocks of 8 rows that a thread unpacks
  // The range begins with block `first` of 8 rows, and has `blocks` of them.
  uint32_t first = 0, blocks = 0;
  Divisor by_across{}, by_strips{};
  Divisor by_group{};                 // divides by the number of blocks of 8 rows in a group
  bool quads = false, words = false;  // whole accesses to x and to codes are possible
};

// The keys of the stream that packed, in shared memory. Every thread comes here, before it may
// return.
__device__ __forceinline__ void draw_keys(const Unpacking& u, StreamKeys& keys) {
  if (threadIdx.x == 0) keys = stream_keys(u.stream, u.stream.advance->steps);
  __syncthreads();
}

// draw_keys() where they are needed: by dithered rounding, and by groups that draw rows.
template <bool kDithered, bool kMayDraw>
__device__ __forceinline__ void draw_keys_for(const Unpacking& u, StreamKeys& keys) {
  if (kDithered || (kMayDraw && may_draw_rows(u.weights, u.layout.bits))) draw_keys(u, keys);
}

// Where a thread's block lies.
struct UnpackPlace {
  int64_t row;  // the row of the view where the block begins
  int rows;     // the number of rows that the block has, up to 8
  int64_t column, group;
  CodeBlock codes;
  bool whole;  // all 8 rows of 4 columns are in the range, and codes are whole words
};

// The block of 8 rows number `block`, of `count` columns from `column` on.
__device__ __forceinline__ UnpackPlace place_at(const Unpacking& u, uint32_t block, int64_t column,
                                                int count) {
  const GroupLayout& layout = u.layout;
  const auto [group, inside] = u.by_group.divide(block);
  UnpackPlace at;
  at.row = int64_t{block} * kRows;
  at.column = column;
  at.group = group;
  at.codes = {const_cast<uint8_t*>(u.payload) + layout.code_offset(at.group) + column,
              static_cast<int>(layout.cols),
              static_cast<int>(layout.rows_of(at.group)),
              static_cast<int>(inside),
              count,
              u.words};
  const int rows = at.codes.rows - at.codes.block * kRows;
  at.rows = rows < kRows ? rows : kRows;
  at.whole = u.words && at.rows == kRows && count == kCols &&
             (at.row + kRows - 1) * layout.cols + column + kCols <= u.end;
  return at;
}

// The blocks of 8 rows of the thread.
struct ThreadBlocks {
  uint32_t first = 0, count = 0;
  int64_t column = 0;
  int cols = 0;  // the number of columns, up to 4
};
__device__ __forceinline__ ThreadBlocks blocks_of_thread(const Unpacking& u) {
  const auto [down, strip] = u.by_strips.divide(blockIdx.x);
  const auto [y, x] = u.by_across.divide(threadIdx.x);
  const uint32_t begin = (down * u.tall + y) * u.deep;
  ThreadBlocks mine;
  mine.column = (static_cast<int64_t>(strip) * u.across + x) * kCols;
  if (y >= u.tall || begin >= u.blocks || mine.column >= u.layout.cols) return mine;
  mine.first = u.first + begin;
  mine.count = u.blocks - begin < u.deep ? u.blocks - begin : u.deep;
  const int64_t left = u.layout.cols - mine.column;
  mine.cols = static_cast<int>(left < kCols ? left : kCols);
  return mine;
}

// Calls f(std::bool_constant<flag>{}).
template <class F>
__device__ __forceinline__ void with_flag(bool flag, const F& f) {
  flag ? f(std::true_type{}) : f(std::false_type{});
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

// The rows of the block in a tensor that has the layout of the unpacked one. They are loaded in
// order, or stored in order. kWhole: at.whole, and whole accesses.
template <class T, bool kWhole>
class BlockRows {
  using Element = std::remove_const_t<T>;

 public:
  // x: its element `u.begin`. quads: whole accesses are possible.
  __device__ __forceinline__ BlockRows(const Unpacking& u, const UnpackPlace& at, T* x, bool quads)
      : cols_(u.layout.cols),
        left_(u.end - at.row * u.layout.cols - at.column),
        row_(x + (u.end - u.begin - left_)),
        rows_(at.rows),
        count_(at.codes.cols),
        quads_(quads) {
    // The pointer goes on by a row each time. Without this the compiler computes each row's index.
    row_ = unknown(row_);
  }

  __device__ __forceinline__ Quad<Element> load() {
    Quad<Element> out{};
    if constexpr (kWhole) {
      out = ops::cuda::get_raw<kCols>(row_);
    } else {
      one_after_another();
      const int64_t there = here();
      if (quads_ && there >= kCols) {
        out = ops::cuda::get_raw<kCols>(row_);
      } else {
#pragma unroll
        for (int c = 0; c < kCols; ++c)
          if (c < there) out.at[c] = row_[c];
      }
    }
    next();
    return out;
  }
  __device__ __forceinline__ void store(const Quad<float>& value) {
    if constexpr (kWhole) {
      ops::cuda::put<kCols>(row_, value);
    } else {
      one_after_another();
      const int64_t there = here();
      if (quads_ && there >= kCols) {
        ops::cuda::put<kCols>(row_, value);
      } else {
#pragma unroll
        for (int c = 0; c < kCols; ++c)
          if (c < there) row_[c] = cuda::store<Element>(value.at[c]);
      }
    }
    next();
  }

 private:
  // How many elements of the row there are.
  __device__ __forceinline__ int64_t here() const {
    return rows_ <= 0 ? 0 : left_ < count_ ? left_ : count_;
  }
  __device__ __forceinline__ void next() {
    row_ += cols_;
    left_ -= cols_;
    --rows_;
  }

  int64_t cols_, left_;  // left: elements from the next row's first one to the end of the range
  T* row_;
  int rows_, count_;
  bool quads_;
};

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
  constexpr int64_t kFewThreads = 2048;  // for each multiprocessor
  Unpacking u{job.payload, job.x,       layout,     job.begin,
              job.end,     job.weights, job.affine, StreamName(job.stream)};
  u.words = is_quadable<uint8_t>(job.payload, layout);
  u.strips = std::max<int64_t>((quads + kWarp - 1) / kWarp, 1);
  u.across = static_cast<int>((quads + u.strips - 1) / u.strips);
  u.tall = static_cast<uint32_t>(kThreads / std::max(u.across, 1));
  u.first = static_cast<uint32_t>(job.begin / std::max<int64_t>(block, 1));
  u.blocks = static_cast<uint32_t>((job.end - job.begin + block - 1) / std::max<int64_t>(block, 1));
  u.deep = static_cast<uint32_t>(
      std::clamp<int64_t>(u.blocks * quads / (kFewThreads * multiprocessors()), 1, 4));
  u.by_strips = Divisor(u.strips);
  u.by_across = Divisor(std::max(u.across, 1));
  u.by_group = Divisor(std::max<int64_t>(layout.group_rows / kRows, 1));
  return u;
}

// Threads for all blocks of 8 rows of 4 columns: blocks_of_thread().
template <class Kernel, class... Arguments>
void launch_blocks(const Kernel& kernel, const Unpacking& u, const Arguments&... arguments) {
  const int64_t down = int64_t{u.tall} * u.deep;
  const int64_t blocks = (int64_t{u.blocks} + down - 1) / down * u.strips;
  launch(kernel, {as_blocks(blocks), kThreads}, arguments...);
}

}  // namespace frugal::compress::cuda
