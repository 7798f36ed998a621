// Building blocks of CUDA kernels: indices, sums over warps and blocks, 16-byte accesses. The order
// of every sum is fixed, so results are equal from run to run. For .cu files.
#pragma once
#include <type_traits>

#include "core/cuda/cuda.h"
#include "core/dtype.h"
#include "core/finite.h"

#ifndef FRUGAL_CUDA_EMULATOR
#include <cuda_bf16.h>
#endif

namespace frugal::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

__device__ __forceinline__ int64_t first_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t index_stride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

template <class F>
__global__ void for_each_kernel(int64_t n, F f) {
  for (int64_t i = first_index(); i < n; i += index_stride()) f(i);
}
// Calls f(i) on the device for each i in [0, n).
template <class F>
void for_each(int64_t n, const F& f) {
  launch(for_each_kernel<F>, {blocks_for(n)}, n, f);
}

// The shared memory of the block: grid.shared bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef FRUGAL_CUDA_EMULATOR
  return static_cast<T*>(emulator::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char frugal_shared[];
  return reinterpret_cast<T*>(frugal_shared);
#endif
}

// load() converts a stored f32 or bf16 to f32; store() converts back.
__device__ __forceinline__ float load(float x) { return x; }
__device__ __forceinline__ float load(BFloat16 x) { return static_cast<float>(x); }
template <class T>
__device__ __forceinline__ T store(float x) {
#ifndef FRUGAL_CUDA_EMULATOR
  if constexpr (std::is_same_v<T, BFloat16>) {  // One instruction converts all values except NaN.
    T out;
    out.bits = !is_nan(x) ? __bfloat16_as_ushort(__float2bfloat16_rn(x))
                          : static_cast<uint16_t>(__float_as_uint(x) >> 16 | 0x40u);
    return out;
  } else {
    return T(x);
  }
#else
  return T(x);
#endif
}

// A value of 16 bytes, read or written at once. REQUIRES: addresses that are multiples of 16.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};
template <class T>
__device__ __forceinline__ Pack<T> load_pack(const T* x) {
  return *reinterpret_cast<const Pack<T>*>(x);
}
template <class T>
__device__ __forceinline__ void store_pack(T* y, const Pack<T>& pack) {
  *reinterpret_cast<Pack<T>*>(y) = pack;
}
inline bool is_packable(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <class T>
struct Sum {
  __device__ T operator()(T a, T b) const { return a + b; }
};
template <class T>
struct Max {  // NaN wins
  __device__ T operator()(T a, T b) const { return a > b || is_nan(a) ? a : b; }
};

// Combines the values of all lanes of a warp. Every lane gets the result.
template <class T, class F>
__device__ __forceinline__ T across_warp(T value, F combine) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}
// Combines the values of all threads of a block. Every thread gets the result. It may be called
// again at once. REQUIRES: every thread of the block calls it; the block has one dimension and
// whole warps.
template <class T, class F>
__device__ __forceinline__ T across_block(T value, T neutral, F combine) {
  __shared__ T partial[kWarp];
  const int warp = static_cast<int>(threadIdx.x) / kWarp,
            lane = static_cast<int>(threadIdx.x) % kWarp;
  value = across_warp(value, combine);
  __syncthreads();
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  value = lane < static_cast<int>(blockDim.x) / kWarp ? partial[lane] : neutral;
  return across_warp(value, combine);
}
template <class T>
__device__ __forceinline__ T block_sum(T value) {
  return across_block(value, T{}, Sum<T>{});
}

// Calls f(float{}) or f(BFloat16{}). REQUIRES: dtype is f32 or bf16.
template <class F>
auto with_activation(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(BFloat16{});
  FRUGAL_ASSERT(dtype == DType::f32);
  return f(float{});
}

}  // namespace frugal::cuda
