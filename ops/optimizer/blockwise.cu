#include "ops/optimizer/blockwise.h"

#include "ops/optimizer/blockwise_cuda.h"

namespace frugal::ops {
namespace {

using cuda::kStateRun;

template <class T>
__global__ void quantize_kernel(int64_t n, bool wide, const cuda::DeviceMap map, bool draws,
                                RngKey key, const T* x, uint8_t* codes, float* scales) {
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp;
  const int64_t blocks = state_blocks(n);
  for (int64_t block = cuda::first_index() / cuda::kWarp; block < blocks;
       block += cuda::index_stride() / cuda::kWarp) {
    const int64_t at = block * kStateBlock + lane * kStateRun;
    T in[kStateRun];
    float values[kStateRun];
    uint8_t out[kStateRun];
    cuda::load_some(x + at, n - at, wide, in);
#pragma unroll
    for (int k = 0; k < kStateRun; ++k) values[k] = cuda::load(in[k]);
    const float scale = cuda::encode_run(values, map, draws ? &key : nullptr, at, out);
    cuda::store_some(codes + at, n - at, true, out);
    if (lane == 0) scales[block] = scale;
  }
}

template <class T>
__global__ void dequantize_kernel(int64_t n, const cuda::DeviceMap map, const uint8_t* codes,
                                  const float* scales, T* x) {
  __shared__ float values[256];
  values[threadIdx.x] = map.values[threadIdx.x];
  __syncthreads();
  for (int64_t i = cuda::first_index(); i < n; i += cuda::index_stride())
    x[i] = cuda::store<T>(cuda::state_value(values[codes[i]], scales[i / kStateBlock]));
}

}  // namespace

void quantize_blockwise_kernel(Cuda, const Tensor& x, const BlockwiseState& state,
                               const std::optional<RngKey>& key) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::launch(quantize_kernel<T>, cuda::state_grid(x.numel()), x.numel(),
                 cuda::is_packable(x.raw()), cuda::device_map(state.map), key.has_value(),
                 key.value_or(RngKey{}), x.data<T>(), state.codes.mut<uint8_t>(),
                 state.scales.mut<float>());
  });
}

void dequantize_blockwise_kernel(Cuda, const BlockwiseState& state, const Tensor& x) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::launch(dequantize_kernel<T>, {cuda::blocks_for(x.numel()), 256}, x.numel(),
                 cuda::device_map(state.map), state.codes.data<uint8_t>(),
                 state.scales.data<float>(), x.mut<T>());
  });
}

}  // namespace frugal::ops
