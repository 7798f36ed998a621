// Sums over the middle axis of [outer, reduce, inner] on CUDA. The order of additions depends only
// on extents: threads add a few terms each, blocks add the sums of their threads, and where several
// blocks share a sum, their results are summed again. For .cu files.
#pragma once
#include <algorithm>

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

// How a block of kSumThreads threads divides its terms: `lanes` threads for each of `outputs` sums.
// Along columns, each output is kWidth sums.
struct SumTiles {
  static constexpr int kThreads = 256;
  int64_t outer, reduce, inner;
  int lanes, outputs;    // lanes * outputs is kThreads
  bool rows;             // inner is 1: neighbouring threads add neighbouring elements of one row
  int64_t span, chunks;  // terms that a block adds; blocks that share a sum
  int64_t groups;        // number of groups of `outputs` sums
};

// f has the constants `kWidth` and the type `Term` (float, double, or a struct of several sums).
// f(o, r, i, terms) gives kWidth elements from (o, r, i) on, along the row or across the columns.
// Out: out(o * inner + i, total).
template <class Total, class F, class Out>
__global__ void sum_tiles_kernel(SumTiles tiles, F f, Out out) {
  constexpr int kWidth = F::kWidth;
  __shared__ Total shared[kWidth * SumTiles::kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = tiles.rows ? thread % tiles.lanes : thread / tiles.outputs;
  const int output = tiles.rows ? thread / tiles.lanes : thread % tiles.outputs;
  const int64_t strips = tiles.rows ? 1 : tiles.groups / tiles.outer;
  for (int64_t task = blockIdx.x; task < tiles.groups * tiles.chunks; task += gridDim.x) {
    const int64_t group = task / tiles.chunks, begin = task % tiles.chunks * tiles.span;
    const int64_t end = std::min(begin + tiles.span, tiles.reduce);
    const int64_t o = tiles.rows ? group * tiles.outputs + output : group / strips;
    const int64_t i =
        tiles.rows ? 0 : (group % strips * tiles.outputs + output) * static_cast<int64_t>(kWidth);
    const bool there = o < tiles.outer && i < tiles.inner;
    typename F::Term sums[kWidth]{};
    if (there) {
      const int64_t wide = tiles.rows ? kWidth : 1;
#pragma unroll 4
      for (int64_t r = begin + lane * wide; r < end; r += tiles.lanes * wide) {
        typename F::Term terms[kWidth];
        f(o, r, i, terms);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sums[k] += terms[k];
      }
    }
    int width = kWidth;
    __syncthreads();  // the values of the previous task have been read
    if (tiles.rows) {
      Total total{};
      for (int k = 0; k < kWidth; ++k) total += static_cast<Total>(sums[k]);
      shared[thread] = total;
      width = 1;
    } else {
      for (int k = 0; k < kWidth; ++k)
        shared[k * SumTiles::kThreads + thread] = static_cast<Total>(sums[k]);
    }
    const int next = tiles.rows ? 1 : tiles.outputs;  // distance between the threads of one output
    for (int half = tiles.lanes / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half)
        for (int k = 0; k < width; ++k)
          shared[k * SumTiles::kThreads + thread] +=
              shared[k * SumTiles::kThreads + thread + half * next];
    }
    // The first thread of an output has written its sum already.
    if (there && lane == 0)
      for (int k = 0; k < width; ++k)
        out((o * tiles.chunks + task % tiles.chunks) * tiles.inner + i + k,
            shared[k * SumTiles::kThreads + thread]);
  }
}

inline SumTiles sum_tiles(int64_t outer, int64_t reduce, int64_t inner, int width) {
  constexpr int kThreads = SumTiles::kThreads;
  const auto above = [](int64_t n, int most) {  // the next power of two
    int power = 1;
    while (power < most && power < n) power *= 2;
    return power;
  };
  SumTiles tiles{outer, reduce, inner, 1, kThreads, inner == 1, 0, 0, 0};
  const int64_t wide = tiles.rows ? width : 1;
  if (tiles.rows) {
    tiles.lanes = above((reduce / wide + 3) / 4, kThreads);
    tiles.outputs = kThreads / tiles.lanes;
    tiles.groups = (outer + tiles.outputs - 1) / tiles.outputs;
  } else {
    tiles.outputs = above((inner + width - 1) / width, kWarp);
    tiles.lanes = kThreads / tiles.outputs;
    const int64_t columns = int64_t{tiles.outputs} * width;
    tiles.groups = outer * ((inner + columns - 1) / columns);
  }
  // Some thousand blocks, if there is enough work for them; 16 to 256 terms for each thread.
  constexpr int64_t kBlocks = 2048;
  const int64_t step = tiles.lanes * wide, steps = (reduce + step - 1) / step;
  const int64_t depth = steps * std::max<int64_t>(tiles.groups, 1) / kBlocks;
  tiles.span = step * std::clamp<int64_t>(depth, 16, 256);
  tiles.chunks = std::max<int64_t>(1, (reduce + tiles.span - 1) / tiles.span);
  return tiles;
}

// Two sums that are computed together.
struct Two {
  double first = 0, second = 0;
  __device__ Two& operator+=(const Two& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

template <class Total>
struct PartialSums {
  using Term = Total;
  static constexpr int kWidth = 1;
  int64_t chunks, inner;
  const Total* partial;  // [outer, chunks, inner]
  __device__ void operator()(int64_t o, int64_t r, int64_t i, Total* terms) const {
    terms[0] = partial[(o * chunks + r) * inner + i];
  }
};
template <class Total>
struct StoreTotal {
  Total* totals;
  __device__ void operator()(int64_t at, const Total& total) const { totals[at] = total; }
};

// Calls out(o * inner + i, total), where the total is the sum over r of the terms of f at (o, r,
// i), added as type `Total`. REQUIRES: if kWidth is above 1, it divides reduce (for rows) or inner
// (for columns).
template <class Total, class F, class Out>
void sum_over(Device device, int64_t outer, int64_t reduce, int64_t inner, const F& f,
              const Out& out) {
  if (outer == 0 || inner == 0) return;
  const SumTiles tiles = sum_tiles(outer, reduce, inner, F::kWidth);
  const Grid grid{blocks_for(tiles.groups * tiles.chunks, 1), SumTiles::kThreads};
  if (tiles.chunks == 1) return launch(sum_tiles_kernel<Total, F, Out>, grid, tiles, f, out);
  const CategoryScope scope(Category::workspace);
  const Tensor partial = Tensor::empty(
      {outer, tiles.chunks, inner, static_cast<int64_t>(sizeof(Total) / sizeof(double))},
      DType::f64, device);
  auto* sums = static_cast<Total*>(partial.raw());
  launch(sum_tiles_kernel<Total, F, StoreTotal<Total>>, grid, tiles, f, StoreTotal<Total>{sums});
  sum_over<Total>(device, outer, tiles.chunks, inner, PartialSums<Total>{tiles.chunks, inner, sums},
                  out);
}

}  // namespace frugal::ops::cuda
