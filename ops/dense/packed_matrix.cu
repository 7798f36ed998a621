#include "ops/dense/packed_matrix.h"

#include "ops/cuda/cuda_vector.h"
#include "ops/optimizer/blockwise_cuda.h"

namespace frugal::ops {
namespace {

struct Nf4 {
  const uint8_t *codes, *scales;
  const float *scale_blocks, *scale_mean;
  float values[16];
  float numbers[256];  // the map of scales
};

// What a thread writes: N neighbours of a row.
struct Place {
  int64_t rows, columns, row, column, width;  // the tile, in a matrix of `width` columns
  __device__ int64_t at(int64_t i) const {
    return (row + i / columns) * width + column + i % columns;
  }
};

// N is 1, or divides the extents, so that the neighbours are of one block and begin with a byte.
template <int N, class T>
__global__ void nf4_kernel(const Place place, const Nf4 m, T* to) {
  __shared__ float values[16];
  __shared__ float numbers[256];
  if (threadIdx.x < 16) values[threadIdx.x] = m.values[threadIdx.x];
  numbers[threadIdx.x] = m.numbers[threadIdx.x];
  __syncthreads();
  const float mean = m.scale_mean[0];
  for (int64_t i = cuda::first_index() * N; i < place.rows * place.columns;
       i += cuda::index_stride() * N) {
    const int64_t first = place.at(i), block = first / kNf4Block;
    // The product is rounded on its own, as on the CPU.
    const float scale =
        cuda::state_value(numbers[m.scales[block]], m.scale_blocks[block / kStateBlock]) + mean;
    cuda::Floats<N> out;
    if constexpr (N == 1) {
      const unsigned byte = m.codes[first / 2];
      out.at[0] = values[first % 2 == 0 ? byte >> 4 : byte & 15] * scale;
    } else {
#pragma unroll
      for (int k = 0; k < N; k += 2) {
        const unsigned byte = m.codes[(first + k) / 2];
        out.at[k] = values[byte >> 4] * scale;
        out.at[k + 1] = values[byte & 15] * scale;
      }
    }
    cuda::put(to + i, out);
  }
}

template <int N, class T>
__global__ void int8_kernel(const Place place, const uint8_t* codes, const float* scales, T* to) {
  for (int64_t i = cuda::first_index() * N; i < place.rows * place.columns;
       i += cuda::index_stride() * N) {
    const int64_t first = place.at(i);
    const float scale = scales[first / place.width];
    cuda::Floats<N> out;
#pragma unroll
    for (int k = 0; k < N; ++k)
      out.at[k] = static_cast<float>(static_cast<int8_t>(codes[first + k])) * scale;
    cuda::put(to + i, out);
  }
}

template <int N, class T>
__global__ void bf16_kernel(const Place place, const BFloat16* values, T* to) {
  for (int64_t i = cuda::first_index() * N; i < place.rows * place.columns;
       i += cuda::index_stride() * N) {
    const int64_t first = place.at(i);
    cuda::Floats<N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = cuda::load(values[first + k]);
    cuda::put(to + i, out);
  }
}

}  // namespace

void unpack_tile_kernel(Cuda, const PackedMatrix& m, const Tile& tile, const Tensor& to) {
  if (to.numel() == 0) return;
  const Place place{tile.rows, tile.columns, tile.row, tile.column, m.columns};
  cuda::with_activation(to.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kSize = cuda::Pack<T>::kSize;
    const bool whole = tile.columns % kSize == 0 && tile.column % kSize == 0 &&
                       m.columns % kSize == 0 && cuda::is_packable(to.raw());
    const auto run = [&](auto size) {
      constexpr int kN = decltype(size)::value;
      const cuda::Grid grid{cuda::blocks_for(to.numel() / kN), 256};
      if (m.format == MatrixFormat::nf4) {
        Nf4 from{m.codes.data<uint8_t>(),
                 m.scales.data<uint8_t>(),
                 m.scale_blocks.data<float>(),
                 m.scale_mean.data<float>(),
                 {},
                 {}};
        for (size_t i = 0; i < 16; ++i) from.values[i] = nf4_values()[i];
        for (size_t i = 0; i < 256; ++i) from.numbers[i] = state_map_values(StateMap::with_sign)[i];
        cuda::launch(nf4_kernel<kN, T>, grid, place, from, to.mut<T>());
      } else if (m.format == MatrixFormat::int8) {
        cuda::launch(int8_kernel<kN, T>, grid, place, m.codes.data<uint8_t>(),
                     m.scales.data<float>(), to.mut<T>());
      } else {
        cuda::launch(bf16_kernel<kN, T>, grid, place, m.codes.data<BFloat16>(), to.mut<T>());
      }
    };
    if (whole)
      run(std::integral_constant<int, kSize>{});
    else
      run(std::integral_constant<int, 1>{});
  });
}

}  // namespace frugal::ops
