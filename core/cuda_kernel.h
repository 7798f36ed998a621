// What CUDA kernels are written with: indices, sums over warps and blocks, 16-byte accesses. The
// order of every sum is fixed, so results are equal from run to run. For .cu files.
#pragma once
#include <type_traits>

#include "core/cuda.h"
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
// f(i) for i in [0, n), on the device.
template <class F>
void for_each(int64_t n, const F& f) {
  launch(for_each_kernel<F>, {blocks_for(n)}, n, f);
}

// The block's shared memory, grid.shared bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef FRUGAL_CUDA_EMULATOR
  return static_cast<T*>(emulator::dynamic_shared());
#else
  extern __shared__ __align__(16) unsigned char frugal_shared[];
  return reinterpret_cast<T*>(frugal_shared);
#endif
}

// f32 of what is stored as f32 or bf16, and back.
__device__ __forceinline__ float load(float x) { return x; }
__device__ __forceinline__ float load(BFloat16 x) { return static_cast<float>(x); }
template <class T>
__device__ __forceinline__ T store(float x) {
#ifndef FRUGAL_CUDA_EMULATOR
  if constexpr (std::is_same_v<T, BFloat16>) {  // one instruction, but for the bits of NaN
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

// 16 bytes at once. REQUIRES: addresses that are multiples of 16.
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

// The combination of all lanes' values, in every lane.
template <class T, class F>
__device__ __forceinline__ T across_warp(T value, F combine) {
  for (int step = kWarp / 2; step > 0; step /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, step));
  return value;
}
// The combination of all threads' values, in every thread. REQUIRES: every thread of a
// one-dimensional block of whole warps calls it. May be called again at once.
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

// Calls f(float{}) or f(BFloat16{}). REQUIRES: checked before.
template <class F>
auto with_activation(DType dtype, F&& f) {
  if (dtype == DType::bf16) return f(BFloat16{});
  FRUGAL_ASSERT(dtype == DType::f32);
  return f(float{});
}

}  // namespace frugal::cuda
