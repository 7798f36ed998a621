// Walks over the rows of CSR matrices. A warp takes a row, or a piece of a long row (RowSplit); the
// sums of pieces are added in order afterwards. The lanes lie across the features of an entry.
// Where there are few features, groups of lanes take entries in turn. For .cu files.
#pragma once
#include <algorithm>

#include "ops/cuda/cuda_map.h"
#include "ops/graph/graph.h"

namespace frugal::ops::cuda {

struct Walk {
  const int64_t* row_ptr;
  const int32_t* col;
  const int64_t *pieces, *long_rows;
  int64_t rows, piece_count, long_count;
};
inline Walk walk_of(const Csr& a) {
  const RowSplit& split = a.split;
  Walk walk{a.row_ptr.data<int64_t>(), a.col.data<int32_t>(), nullptr, nullptr, a.rows, 0, 0};
  if (split.pieces > 0) {
    walk.pieces = split.warp_pieces.data<int64_t>();
    walk.long_rows = split.warp_rows.data<int64_t>();
    walk.piece_count = split.pieces;
    walk.long_count = split.warp_rows.size(0);
  }
  return walk;
}
inline constexpr int kWalkThreads = 256;
// The number of blocks whose warps together take all rows and pieces.
inline dim3 walk_blocks(const Walk& walk) {
  constexpr int64_t kWarps = kWalkThreads / kWarp;
  return as_blocks((walk.rows + walk.piece_count + kWarps - 1) / kWarps);
}

// The work of this warp: entries [begin, end) of `row`. row -1: no work, because the row was split
// into pieces.
struct Span {
  int64_t row, begin, end, piece;  // piece -1: the whole row
};
__device__ __forceinline__ Span span_of(const Walk& walk) {
  const int64_t item = first_index() / kWarp, row = item - walk.piece_count;
  if (row < 0) {
    const int64_t* at = walk.pieces + 3 * item;
    return {at[0], at[1], at[2], item};
  }
  if (row >= walk.rows) return {-1, 0, 0, -1};
  const int64_t begin = walk.row_ptr[row], end = walk.row_ptr[row + 1];
  return {end - begin > RowSplit::kWarpPiece ? -1 : row, begin, end, -1};
}

// Whether rows of `width` elements of all these tensors can be read in packs. Tensors that are not
// there do not matter.
template <class T>
bool packs(int64_t width, std::initializer_list<const Tensor*> all) {
  bool can = width % Pack<T>::kSize == 0;
  for (const Tensor* x : all) can = can && (!x->defined() || is_packable(x->raw()));
  return can;
}

template <class T, int kSize>
struct alignas(sizeof(T) * kSize < 16 ? sizeof(T) * kSize : 16) Vec {
  T at[kSize];
};
template <int kSize, class T>
__device__ __forceinline__ Vec<T, kSize> load_vec(const T* x) {
  return *reinterpret_cast<const Vec<T, kSize>*>(x);
}
template <int kSize, class T>
__device__ __forceinline__ void store_vec(T* y, const float (&values)[kSize]) {
  Vec<T, kSize> out;
#pragma unroll
  for (int k = 0; k < kSize; ++k) out.at[k] = store<T>(values[k]);
  *reinterpret_cast<Vec<T, kSize>*>(y) = out;
}

// The number of lanes for `width` features, with kSize features each. A power of 2.
inline int lanes_for(int64_t width, int size) {
  int lanes = 1;
  while (lanes < kWarp && lanes * size < width) lanes *= 2;
  return lanes;
}

// Adds the sums that the groups of lanes of a warp have for their entries.
template <int kSize>
__device__ __forceinline__ void add_parts(float (&sum)[kSize], int lanes) {
  for (int step = lanes; step < kWarp; step *= 2)
#pragma unroll
    for (int k = 0; k < kSize; ++k) sum[k] += __shfl_xor_sync(kAllLanes, sum[k], step);
}

// Computes sums over the entries of rows. Op: add<kSize>(row, e, f, sum) adds features [f, f +
// kSize) of entry e to `sum`; finish<kSize>(row, f, sum) receives the sum of the row.
template <int kSize, class Op>
__global__ void __launch_bounds__(kWalkThreads)
    sum_entries_kernel(Walk walk, Op op, int64_t width, int lanes, float* parts) {
  const Span span = span_of(walk);
  if (span.row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarp, part = lane / lanes, step = kWarp / lanes;
  for (int64_t first = 0; first < width; first += lanes * kSize) {
    const int64_t f = first + lane % lanes * kSize;
    float sum[kSize] = {};
    if (f < width) {
#pragma unroll 4
      for (int64_t e = span.begin + part; e < span.end; e += step)
        op.template add<kSize>(span.row, e, f, sum);
    }
    add_parts(sum, lanes);
    if (part > 0 || f >= width) continue;
    if (span.piece < 0)
      op.template finish<kSize>(span.row, f, sum);
    else
      store_vec(parts + span.piece * width + f, sum);
  }
}

inline constexpr int kMergeWarps = 8;

// Adds the sums of the pieces of long rows. The grid is [features, long rows]. Each warp adds a
// share of the pieces, then the shares are added.
template <class Op>
__global__ void __launch_bounds__(kMergeWarps* kWarp)
    merge_rows_kernel(Walk walk, Op op, int64_t width, const float* parts) {
  __shared__ float shares[kMergeWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t f = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  for (int64_t i = blockIdx.y; i < walk.long_count; i += gridDim.y) {
    const int64_t *at = walk.long_rows + 3 * i, pieces = at[2];
    float sum = 0;
    if (f < width)
#pragma unroll 4
      for (int64_t p = pieces * warp / kMergeWarps; p < pieces * (warp + 1) / kMergeWarps; ++p)
        sum += parts[(at[1] + p) * width + f];
    __syncthreads();
    shares[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || f >= width) continue;
    float total[1] = {};
    for (int w = 0; w < kMergeWarps; ++w) total[0] += shares[w][lane];
    op.template finish<1>(at[0], f, total);
  }
}
inline Grid merge_grid(const Walk& walk, int64_t width) {
  return {as_blocks((width + kWarp - 1) / kWarp, std::min(walk.long_count, kMostBlocksAcross)),
          kMergeWarps * kWarp};
}

inline Tensor row_parts(int64_t pieces, int64_t width, DType dtype, Device device) {
  CategoryScope scope(Category::workspace);
  return Tensor::empty({pieces, width}, dtype, device);
}

// `packs`: kSize features are 16 bytes of T, and every row begins at a multiple of 16 bytes.
template <class T, class Op>
void sum_entries(const Csr& a, const Op& op, int64_t width, bool packs) {
  const Walk walk = walk_of(a);
  const Tensor parts = row_parts(walk.piece_count, width, DType::f32, a.col.device());
  constexpr int kSize = Pack<T>::kSize;
  if (packs)
    launch(sum_entries_kernel<kSize, Op>, {walk_blocks(walk), kWalkThreads}, walk, op, width,
           lanes_for(width, kSize), parts.mut<float>());
  else
    launch(sum_entries_kernel<1, Op>, {walk_blocks(walk), kWalkThreads}, walk, op, width,
           lanes_for(width, 1), parts.mut<float>());
  if (walk.long_count > 0)
    launch(merge_rows_kernel<Op>, merge_grid(walk, width), walk, op, width, parts.data<float>());
}

}  // namespace frugal::ops::cuda
