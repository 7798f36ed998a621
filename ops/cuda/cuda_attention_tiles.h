// How a block of threads holds and multiplies the tiles of attention. Operands lie in shared memory
// as rows of kD elements. Rows are kStride apart, so that 16-byte columns never use one memory bank
// twice. A tile of scores and a row of sums lie in registers: of the scores [kRows, kCols] a thread
// holds the elements (row(i), col(j)), of the sums [kRows, kD] the elements (row(i), out_col(j)).
// kLanes neighbouring lanes of one warp share a row. For .cu files.
#pragma once
#include "ops/cuda/cuda_mma.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

// f32 without tensor cores: 16 threads across, with 4 rows each.
template <int kD_>
struct FmaTiles {
  using Element = float;
  static constexpr int kD = kD_, kStride = kD + 4;
  // Wide heads get 32 or 16 rows, so that two blocks fit the shared memory of a multiprocessor.
  static constexpr int kRows = kD > 128 ? 16 : kD > 64 ? 32 : 64, kCols = kRows;
  static constexpr int kThreads = 4 * kRows, kLanes = 16;
  static constexpr int kMine = 4, kWide = kCols / 16, kOut = kD / 16;
  static constexpr int kPitch = kCols + 4, kScratch = kRows * kPitch;  // floats
  // Whether there is by_turned(), and registers for a third tile of sums.
  static constexpr bool kTurns = kD <= 128;
  static __device__ __forceinline__ float operand(float x) { return x; }

  static __device__ __forceinline__ int across() { return static_cast<int>(threadIdx.x) % 16; }
  static __device__ __forceinline__ int row(int i) {
    return static_cast<int>(threadIdx.x) / 16 * kMine + i;
  }
  static __device__ __forceinline__ int col(int j) { return across() + 16 * j; }
  static __device__ __forceinline__ int out_col(int j) {
    return j / kPart * (16 * kPart) + across() * kPart + j % kPart;
  }

  // x = a b^T: a [kRows, kD], b [kCols, kD].
  static __device__ __forceinline__ void by_transposed(const float* a, const float* b,
                                                       float (&x)[kMine][kWide]) {
    for (auto& of_row : x)
      for (float& value : of_row) value = 0;
#pragma unroll 4
    for (int k = 0; k < kD; k += 4) {
      Pack<float> left[kMine], right[kWide];
#pragma unroll
      for (int i = 0; i < kMine; ++i) left[i] = load_pack(a + row(i) * kStride + k);
#pragma unroll
      for (int j = 0; j < kWide; ++j) right[j] = load_pack(b + col(j) * kStride + k);
#pragma unroll
      for (int i = 0; i < kMine; ++i)
#pragma unroll
        for (int j = 0; j < kWide; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) x[i][j] += left[i].at[e] * right[j].at[e];
    }
  }

  // y += x b: b [kCols, kD]. The threads of a row pass x to one another through `scratch`.
  static __device__ __forceinline__ void by(const float (&x)[kMine][kWide], const float* b,
                                            float (&y)[kMine][kOut], float* scratch) {
#pragma unroll
    for (int i = 0; i < kMine; ++i)
#pragma unroll
      for (int j = 0; j < kWide; ++j) scratch[row(i) * kPitch + col(j)] = x[i][j];
    __syncwarp();
    add_product(scratch, b, y);
    __syncwarp();
  }

  // y += x^T b: b [kRows, kD]. All threads of the block pass x to one another through `scratch`.
  // REQUIRES: every thread of the block calls it.
  static __device__ __forceinline__ void by_turned(const float (&x)[kMine][kWide], const float* b,
                                                   float (&y)[kMine][kOut], float* scratch) {
    static_assert(kRows == kCols && kMine == Pack<float>::kSize);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kWide; ++j) {
      Pack<float> column;
#pragma unroll
      for (int i = 0; i < kMine; ++i) column.at[i] = x[i][j];
      store_pack(scratch + col(j) * kPitch + row(0), column);
    }
    __syncthreads();
    add_product(scratch, b, y);
  }

 private:
  static constexpr int kPart = kOut < 4 ? kOut : 4;
  struct alignas(4 * kPart) Part {
    float at[kPart];
  };

  // y += x b: x [kRows, kCols] with rows kPitch apart, b [kCols, kD].
  static __device__ __forceinline__ void add_product(const float* x, const float* b,
                                                     float (&y)[kMine][kOut]) {
#pragma unroll 2
    for (int c = 0; c < kCols; c += 4) {
      Pack<float> left[kMine];
#pragma unroll
      for (int i = 0; i < kMine; ++i) left[i] = load_pack(x + row(i) * kPitch + c);
#pragma unroll
      for (int e = 0; e < 4; ++e)
#pragma unroll
        for (int part = 0; part < kOut; part += kPart) {
          const Part right = *reinterpret_cast<const Part*>(b + (c + e) * kStride + out_col(part));
#pragma unroll
          for (int i = 0; i < kMine; ++i)
#pragma unroll
            for (int j = 0; j < kPart; ++j) y[i][part + j] += left[i].at[e] * right.at[j];
        }
    }
  }
};

// On tensor cores a warp holds 16 rows, and a lane holds the elements that cuda_mma.h describes for
// c.
template <int kD_, int kCols_>
struct WarpTiles {
  static constexpr int kD = kD_;
  static constexpr int kRows = 64, kCols = kCols_;
  static constexpr int kThreads = 128, kLanes = 4;
  static constexpr int kMine = 2, kWide = kCols / 4, kOut = kD / 4;
  static constexpr int kScratch = 0;
  static constexpr bool kTurns = false;

  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  static __device__ __forceinline__ int first_row() {
    return static_cast<int>(threadIdx.x) / kWarp * 16;
  }
  static __device__ __forceinline__ int row(int i) { return first_row() + lane() / 4 + 8 * i; }
  static __device__ __forceinline__ int col(int j) { return j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  static __device__ __forceinline__ int out_col(int j) { return col(j); }
};

// bf16. Scores are rounded to bf16 before they are multiplied.
template <int kD_, int kCols_>
struct MmaTiles : WarpTiles<kD_, kCols_> {
  using Base = WarpTiles<kD_, kCols_>;
  using Element = BFloat16;
  using Base::kD, Base::kCols, Base::kMine, Base::kWide, Base::kOut;
  using Base::lane, Base::first_row;
  static constexpr int kStride = kD + 8;
  static __device__ __forceinline__ BFloat16 operand(BFloat16 x) { return x; }

  static __device__ __forceinline__ void by_transposed(const BFloat16* a, const BFloat16* b,
                                                       float (&x)[kMine][kWide]) {
    for (auto& of_row : x)
      for (float& value : of_row) value = 0;
    __syncwarp();  // masks may have separated the lanes, and the product needs all of them together
    const BFloat16* left = a + (first_row() + lane() % 16) * kStride + lane() / 16 * 8;
    const BFloat16* right = b + (lane() % 8 + lane() / 16 * 8) * kStride + lane() / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < kD; k += 16) {
      uint32_t of_a[4], of_b[4];
      load_matrices<false>(of_a, left + k);
#pragma unroll
      for (int c = 0; c < kCols; c += 16) {
        load_matrices<false>(of_b, right + c * kStride + k);
        add(x, c / 4, of_a, of_b);
      }
    }
  }

  static __device__ __forceinline__ void by(const float (&x)[kMine][kWide], const BFloat16* b,
                                            float (&y)[kMine][kOut], float*) {
    __syncwarp();
    const BFloat16* right = b + lane() % 16 * kStride + lane() / 16 * 8;
#pragma unroll
    for (int c = 0; c < kCols; c += 16) {
      const int j = c / 4;
      const uint32_t of_x[4] = {pack_bf16(x[0][j], x[0][j + 1]), pack_bf16(x[1][j], x[1][j + 1]),
                                pack_bf16(x[0][j + 2], x[0][j + 3]),
                                pack_bf16(x[1][j + 2], x[1][j + 3])};
#pragma unroll
      for (int k = 0; k < kD; k += 16) {
        uint32_t of_b[4];
        load_matrices<true>(of_b, right + c * kStride + k);
        add(y, k / 4, of_x, of_b);
      }
    }
  }

 private:
  // Two products side by side. The second begins at element j of the thread.
  template <int kElements>
  static __device__ __forceinline__ void add(float (&c)[kMine][kElements], int j,
                                             const uint32_t (&a)[4], const uint32_t (&b)[4]) {
    multiply_add(c[0][j], c[0][j + 1], c[1][j], c[1][j + 1], a, b[0], b[1]);
    multiply_add(c[0][j + 2], c[0][j + 3], c[1][j + 2], c[1][j + 3], a, b[2], b[3]);
  }
};

// f32, rounded to tf32 before it is multiplied.
template <int kD_, int kCols_>
struct Tf32Tiles : WarpTiles<kD_, kCols_> {
  using Base = WarpTiles<kD_, kCols_>;
  using Element = float;
  using Base::kD, Base::kCols, Base::kMine, Base::kWide, Base::kOut;
  using Base::lane, Base::first_row;
  static constexpr int kStride = kD + 4;
  static __device__ __forceinline__ float operand(float x) { return round_tf32(x); }

  static __device__ __forceinline__ void by_transposed(const float* a, const float* b,
                                                       float (&x)[kMine][kWide]) {
    for (auto& of_row : x)
      for (float& value : of_row) value = 0;
    __syncwarp();  // masks may have separated the lanes, and the product needs all of them together
    const int from = lane() / 4 * kStride + lane() % 4;
    const float *left = a + first_row() * kStride + from, *right = b + from;
#pragma unroll 4
    for (int k = 0; k < kD; k += 8) {
      const float of_a[4] = {left[k], left[8 * kStride + k], left[k + 4],
                             left[8 * kStride + k + 4]};
#pragma unroll
      for (int c = 0; c < kCols; c += 8)
        add(x, c / 4, of_a, right[c * kStride + k], right[c * kStride + k + 4]);
    }
  }

  // A lane holds columns 2t and 2t + 1 of x, where the product expects columns t and t + 4. The
  // rows of b are taken in the same changed order, so the sum is right.
  static __device__ __forceinline__ void by(const float (&x)[kMine][kWide], const float* b,
                                            float (&y)[kMine][kOut], float*) {
    __syncwarp();
    const float* right = b + lane() % 4 * 2 * kStride + lane() / 4;
#pragma unroll
    for (int c = 0; c < kCols; c += 8) {
      const int j = c / 4;
      const float of_x[4] = {round_tf32(x[0][j]), round_tf32(x[1][j]), round_tf32(x[0][j + 1]),
                             round_tf32(x[1][j + 1])};
#pragma unroll
      for (int k = 0; k < kD; k += 8)
        add(y, k / 4, of_x, right[c * kStride + k], right[(c + 1) * kStride + k]);
    }
  }

 private:
  template <int kElements>
  static __device__ __forceinline__ void add(float (&c)[kMine][kElements], int j,
                                             const float (&a)[4], float b0, float b1) {
    multiply_add(c[0][j], c[0][j + 1], c[1][j], c[1][j + 1], a, b0, b1);
  }
};

// Combines the values of all lanes that share a row.
template <class Tiles, class F>
__device__ __forceinline__ float across_row(float value, F combine) {
#pragma unroll
  for (int step = Tiles::kLanes / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}

// Copies rows [0, kCount) of d elements, `stride` apart, to shared memory as operands. Rows from
// `there` on and columns from d on become 0. `packs`: copies 16 bytes at a time.
template <class Tiles, int kCount>
__device__ __forceinline__ void load_tile(typename Tiles::Element* to,
                                          const typename Tiles::Element* from, int64_t stride,
                                          int64_t there, int d, bool packs) {
  using T = typename Tiles::Element;
  const int rows = there < kCount ? static_cast<int>(there) : kCount;
  if (packs) {
    constexpr int kSize = Pack<T>::kSize, kPacks = Tiles::kD / kSize;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < kCount * kPacks; i += Tiles::kThreads) {
      const int r = i / kPacks, c = i % kPacks * kSize;
      Pack<T> pack{};
      if (r < rows && c < d) pack = load_pack(from + r * stride + c);
#pragma unroll
      for (auto& value : pack.at) value = Tiles::operand(value);
      store_pack(to + r * Tiles::kStride + c, pack);
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < kCount * Tiles::kD; i += Tiles::kThreads) {
    const int r = i / Tiles::kD, c = i % Tiles::kD;
    to[r * Tiles::kStride + c] = r < rows && c < d ? Tiles::operand(from[r * stride + c]) : T{};
  }
}

}  // namespace frugal::ops::cuda
