// Sums over the rows of [rows, C] with threads along the columns. Batch norm, group norm and the
// parameters of layer norm use them. The order of each sum depends only on shapes. For .cu files.
#pragma once
#include <algorithm>

#include "core/cuda/divisor.h"
#include "ops/cuda/cuda_vector.h"
#include "ops/dense/copy.h"

namespace frugal::ops::cuda {

// How the threads of a block cover [rows, columns]. `wide` threads lie along a row and have N
// columns each; `tall` threads lie above one another. `tiles` blocks beside one another cover a
// whole row.
struct Columns {
  int wide = 1, tall = 1, threads = kWarp;
  int64_t packs = 0, tiles = 0;  // packs: columns / N
  Divisor by_wide;

  struct Place {
    int64_t pack;
    int y;
    bool inside;
  };
  __device__ __forceinline__ Place place() const {
    const auto [y, x] = by_wide.divide(threadIdx.x);
    const Place p{static_cast<int64_t>(blockIdx.y) * wide + x, static_cast<int>(y), false};
    return {p.pack, p.y, p.y < tall && p.pack < packs};
  }
};

// At most `threads` threads. There are never more of them above one another than rows to work on.
inline Columns columns_over(int64_t packs, int threads, int64_t most_tall) {
  Columns c;
  c.packs = packs;
  c.tiles = ceil_div(packs, threads);
  c.wide = static_cast<int>(ceil_div(packs, std::max<int64_t>(c.tiles, 1)));
  c.tall = static_cast<int>(
      std::clamp<int64_t>(most_tall, 1, std::max(1, threads / std::max(c.wide, 1))));
  c.threads = static_cast<int>(ceil_div(int64_t{c.wide} * c.tall, kWarp)) * kWarp;
  c.by_wide = Divisor(std::max(c.wide, 1));
  return c;
}

// Adds the K values of the threads above one another; the threads with y = 0 get the sums.
// `shared`: K floats for each thread of the block. REQUIRES: every thread of the block calls it.
template <int K>
__device__ __forceinline__ void add_up(float (&value)[K], const Columns& columns, float* shared) {
  const int t = static_cast<int>(threadIdx.x), count = static_cast<int>(blockDim.x);
  const int y = static_cast<int>(columns.by_wide.divide(threadIdx.x).quotient);
  int half = 1;
  while (2 * half < columns.tall) half *= 2;
  if (columns.tall == 1) half = 0;
  for (; half > 0; half /= 2) {
    // What is read in a round was written in it alone, so that one barrier suffices for each.
    if (y >= half && y < 2 * half)
#pragma unroll
      for (int k = 0; k < K; ++k) shared[k * count + t] = value[k];
    __syncthreads();
    const bool adds = y < half && y + half < columns.tall;
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (adds) value[k] += shared[k * count + t + half * columns.wide];
  }
}

// Sums of [rows, columns] over the rows, in f64; a block takes 32 columns.
inline constexpr int kSumLanes = 16;  // threads above one another

template <class From>
__global__ void __launch_bounds__(kWarp* kSumLanes)
    sum_rows_kernel(const From* from, int64_t rows, int64_t columns, int64_t step, bool add,
                    double* to) {
  __shared__ double partial[kSumLanes][kWarp];
  const int x = static_cast<int>(threadIdx.x) % kWarp, y = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + x;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * step;
  const int64_t end = begin + step < rows ? begin + step : rows;
  double sum = 0;
  if (column < columns)
#pragma unroll 4
    for (int64_t row = begin + y; row < end; row += kSumLanes)
      sum += static_cast<double>(from[row * columns + column]);
  partial[y][x] = sum;
  __syncthreads();
  if (y != 0 || column >= columns) return;
  for (int other = 1; other < kSumLanes; ++other) sum += partial[other][x];
  double* target = to + static_cast<int64_t>(blockIdx.y) * columns + column;
  *target = add ? *target + sum : sum;
}

// `to` [columns] f64 becomes the sum of `from` [rows, columns] over its rows, or that sum is added
// to it.
template <class From>
void sum_rows(Device device, const From* from, int64_t rows, int64_t columns, bool add,
              double* to) {
  constexpr int64_t kRows = 512;  // 32 for each thread; with more rows, several blocks share them
  const int64_t across = ceil_div(columns, kWarp);
  if (rows <= kRows || columns == 0) {
    launch(sum_rows_kernel<From>, {as_blocks(across), kWarp * kSumLanes}, from, rows, columns,
           std::max<int64_t>(rows, 1), add, to);
    return;
  }
  const int64_t parts = std::min<int64_t>(ceil_div(rows, kRows), 256);
  CategoryScope scope(Category::workspace);
  const Tensor part = Tensor::empty({parts, columns}, DType::f64, device);
  launch(sum_rows_kernel<From>, {as_blocks(across, parts), kWarp * kSumLanes}, from, rows, columns,
         ceil_div(rows, parts), false, part.mut<double>());
  sum_rows<double>(device, part.data<double>(), parts, columns, add, to);
}

// For for_each(): converts f64 sums to f32.
struct Narrow {
  const double* from;
  float* to;
  __device__ void operator()(int64_t i) const { to[i] = static_cast<float>(from[i]); }
};

// ---- Two sums for every column of a chunk of rows. x is [samples, rows, c]; a chunk has `step`
// rows of one sample; the results are [samples * chunks, 2, c] f32.
struct Chunks {
  int64_t samples, rows, c, step, chunks;  // chunks: in one sample
  // Divisions of 32 bits take a fifth of the time of those of 64.
  __device__ __forceinline__ int64_t sample() const {
    return blockIdx.x / static_cast<uint32_t>(chunks);
  }
  __device__ __forceinline__ int64_t begin() const {
    return int64_t{blockIdx.x % static_cast<uint32_t>(chunks)} * step;
  }
  __device__ __forceinline__ int64_t end() const {
    return begin() + step < rows ? begin() + step : rows;
  }
  __device__ __forceinline__ int64_t count(int64_t chunk) const {
    return chunk + 1 < chunks ? step : rows - chunk * step;
  }
};
inline constexpr int kSumThreads = 512;

template <int N>
__device__ __forceinline__ void write_sums(float (&value)[2 * N], const Columns& columns,
                                           const Columns::Place& place, int64_t c, float* sums) {
  add_up(value, columns, dynamic_shared<float>());
  if (!place.inside || place.y != 0) return;
  float* to = sums + static_cast<int64_t>(blockIdx.x) * 2 * c + place.pack * N;
  Floats<N> first, second;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    first.at[i] = value[i];
    second.at[i] = value[N + i];
  }
  put<N>(to, first);
  put<N>(to + c, second);
}

// The sum and the sum of squares of x minus the first row of the chunk.
template <class T, int N>
__global__ void __launch_bounds__(kSumThreads, 2)
    chunk_moments_kernel(const T* x, Chunks chunks, Columns columns, float* sums) {
  constexpr int kRows = 4;  // loads that wait at the same time
  const Columns::Place place = columns.place();
  float value[2 * N] = {};
  if (place.inside) {
    const int64_t count = chunks.end() - chunks.begin(), c = chunks.c;
    const T* from = x + (chunks.sample() * chunks.rows + chunks.begin()) * c + place.pack * N;
    const Floats<N> first = get<N>(from);
    for (int64_t row = place.y; row < count; row += int64_t{kRows} * columns.tall) {
      Vector<T, N> v[kRows];
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const int64_t here = row + int64_t{j} * columns.tall;
        v[j] = get_raw<N>(from + (here < count ? here : 0) * c);
      }
#pragma unroll
      for (int j = 0; j < kRows; ++j) {
        const Floats<N> x_row = floats_of(v[j]);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float d = x_row.at[i] - first.at[i];
          value[i] += d;
          value[N + i] = __fmaf_rn(d, d, value[N + i]);
        }
      }
    }
  }
  write_sums<N>(value, columns, place, chunks.c, sums);
}

template <class T>
void chunk_moments(const Tensor& x, const Chunks& chunks, float* sums) {
  with_vectors<T>(chunks.c, {&x}, [&](auto n) {
    constexpr int N = n;
    const Columns columns = columns_over(chunks.c / N, kSumThreads, chunks.step);
    launch(chunk_moments_kernel<T, N>,
           {as_blocks(chunks.samples * chunks.chunks, columns.tiles), columns.threads,
            static_cast<size_t>(columns.threads) * 2 * N * sizeof(float)},
           x.data<T>(), chunks, columns, sums);
  });
}

// Chunks for chunk_moments(): about 500 blocks, but enough rows for each thread. On an H100 a block
// spends about as long on adding up its threads' sums as on 25,000 elements.
inline Chunks moment_chunks(int64_t samples, int64_t rows, int64_t c) {
  constexpr int64_t kBlocks = 512, kElements = int64_t{1} << 14;
  const int64_t fair = ceil_div(samples * rows, kBlocks);
  const int64_t least = std::max<int64_t>(kElements / c, 32);
  const int64_t step = std::max<int64_t>(std::min(std::max(fair, least), rows), 1);
  return {samples, rows, c, step, ceil_div(rows, step)};
}

// Bytes of a mask that keeps all elements.
template <int N>
__device__ __forceinline__ Vector<uint8_t, N> all_bits() {
  Vector<uint8_t, N> bits;
#pragma unroll
  for (uint8_t& byte : bits.at) byte = 0xff;
  return bits;
}

inline constexpr int kGradientThreads = 256;
// Columns of a thread in sums of gradients: 4, or 1 where rows have no vectors.
template <int N>
inline constexpr int kGradientColumns = N < 4 ? N : 4;

// The rows of a chunk that a thread sums, in order: blocks of 8 rows below one another, so that
// what belongs to a group of rows is read once.
struct ThreadRows {
  int64_t begin, end;
};
__device__ __forceinline__ ThreadRows rows_of_thread(const Chunks& chunks, const Columns& columns,
                                                     int y) {
  const int each = static_cast<int>(chunks.step) / 8 / columns.tall +
                   (static_cast<int>(chunks.step) % (8 * columns.tall) != 0 ? 1 : 0);
  const int64_t begin = chunks.begin() + int64_t{8} * each * y, end = begin + int64_t{8} * each;
  return {begin, end < chunks.end() ? end : chunks.end()};
}

// How threads cover the chunks of c columns in sums of gradients.
template <int N>
Columns gradient_columns(const Chunks& chunks) {
  return columns_over(chunks.c / kGradientColumns<N>, kGradientThreads, ceil_div(chunks.step, 8));
}
inline Grid gradient_grid(const Chunks& chunks, const Columns& columns, int each) {
  return {as_blocks(chunks.samples * chunks.chunks, columns.tiles), columns.threads,
          static_cast<size_t>(columns.threads) * 2 * static_cast<size_t>(each) * sizeof(float)};
}

// The sums of g and of g (x - centre). g is dy where the mask is set and 0 elsewhere; without a
// mask g is dy. `centre` gives at<N>(sample, column). g is written unless it is null, and may be dy
// itself. With a mask there is one sample, and a step covers whole bytes of the mask.
template <class T, int N, class Centre>
__global__ void __launch_bounds__(kGradientThreads, 3)
    chunk_gradients_kernel(const T* dy, const uint8_t* mask, const T* x, Centre centre, T* g,
                           Chunks chunks, Columns columns, float* sums) {
  constexpr int kRows = sizeof(T) == 2 ? 8 : 4;  // loads that wait at the same time
  const Columns::Place place = columns.place();
  float value[2 * N] = {};
  if (place.inside) {
    const int64_t c = chunks.c, column = place.pack * N;
    const int64_t at = chunks.sample() * chunks.rows * c + column;
    const Floats<N> middle = centre.template at<N>(chunks.sample(), column);
    const ThreadRows rows = rows_of_thread(chunks, columns, place.y);
    for (int64_t row = rows.begin; row < rows.end; row += 8) {
      Vector<uint8_t, N> bits = all_bits<N>();
      if (mask != nullptr) bits = get_raw<N>(mask + row / 8 * c + column);
#pragma unroll
      for (int first = 0; first < 8; first += kRows) {
        Vector<T, N> d[kRows], v[kRows];
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
          const int64_t here = at + (row + first + j) * c;
          d[j] = v[j] = Vector<T, N>{};
          if (row + first + j >= rows.end) continue;
          d[j] = get_raw<N>(dy + here);
          v[j] = get_raw<N>(x + here);
        }
#pragma unroll
        for (int j = 0; j < kRows; ++j) {
          const Floats<N> d_row = floats_of(d[j]), x_row = floats_of(v[j]);
          Floats<N> kept;
#pragma unroll
          for (int i = 0; i < N; ++i) {
            const bool keep = (bits.at[i] >> (first + j) & 1) != 0;
            kept.at[i] = keep ? d_row.at[i] : 0;
            value[i] += kept.at[i];
            value[N + i] = __fmaf_rn(kept.at[i], x_row.at[i] - middle.at[i], value[N + i]);
          }
          if (g != nullptr && row + first + j < rows.end)
            put<N>(g + at + (row + first + j) * c, kept);
        }
      }
    }
  }
  write_sums<N>(value, columns, place, chunks.c, sums);
}

template <class T, class Centre>
void chunk_gradients(const Tensor& dy, const Tensor& mask, const Tensor& x, const Centre& centre,
                     const Tensor& centres, const Tensor& g, const Chunks& chunks, float* sums) {
  with_vectors<T>(chunks.c, {&dy, &mask, &x, &centres, &g}, [&](auto n) {
    constexpr int N = kGradientColumns<n>;
    const Columns columns = gradient_columns<n>(chunks);
    launch(chunk_gradients_kernel<T, N, Centre>, gradient_grid(chunks, columns, N), dy.data<T>(),
           mask.defined() ? mask.data<uint8_t>() : nullptr, x.data<T>(), centre, mut_or_null<T>(g),
           chunks, columns, sums);
  });
}

}  // namespace frugal::ops::cuda
