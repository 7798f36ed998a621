// Neighbouring elements that are loaded at once and computed in f32. Kernels are written for N
// columns per thread, where N columns are 16 bytes of activations, or N is 1 where extents or
// addresses do not allow that. For .cu files.
#pragma once
#include <initializer_list>

#include "core/cuda/cuda_kernel.h"
#include "core/integers.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector {
  T at[N];
};
template <int N>
using Floats = Vector<float, N>;

// Writes a vector by as few instructions as possible. The compiler splits a store of a struct where
// its address takes long to compute. REQUIRES: global memory.
template <class V>
__device__ __forceinline__ void put_raw(void* to, const V& v) {
#ifdef FRUGAL_CUDA_EMULATOR
  *static_cast<V*>(to) = v;
#else
  if constexpr (sizeof(V) % 16 == 0) {
#pragma unroll
    for (size_t i = 0; i < sizeof(V) / 16; ++i) {
      const uint4 four = reinterpret_cast<const uint4*>(&v)[i];
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(
                       __cvta_generic_to_global(static_cast<uint4*>(to) + i)),
                   "r"(four.x), "r"(four.y), "r"(four.z), "r"(four.w)
                   : "memory");
    }
  } else if constexpr (sizeof(V) == 8) {
    const auto two = reinterpret_cast<const uint2&>(v);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(to)), "r"(two.x),
                 "r"(two.y)
                 : "memory");
  } else {
    *static_cast<V*>(to) = v;
  }
#endif
}

// N elements in their stored dtype, so that waiting values use few registers.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> get_raw(const T* x) {
  return *reinterpret_cast<const Vector<T, N>*>(x);
}
// load() of each element. Two neighbours of bf16 take one instruction each.
template <class T, int N>
__device__ __forceinline__ Floats<N> floats_of(const Vector<T, N>& v) {
  Floats<N> out;
#ifndef FRUGAL_CUDA_EMULATOR
  constexpr bool kPairs = std::is_same_v<T, BFloat16> && N % 2 == 0;
#else
  constexpr bool kPairs = false;
#endif
  if constexpr (kPairs) {
    const auto* pairs = reinterpret_cast<const uint32_t*>(&v);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      out.at[i] = __uint_as_float(pairs[i / 2] << 16);
      out.at[i + 1] = __uint_as_float(pairs[i / 2] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) out.at[i] = load(v.at[i]);
  }
  return out;
}
template <int N, class T>
__device__ __forceinline__ Floats<N> get(const T* x) {
  return floats_of(get_raw<N>(x));
}
// Loads N elements; where x is null all of them are `otherwise`.
template <int N, class T>
__device__ __forceinline__ Floats<N> get_or(const T* x, int64_t at, float otherwise) {
  if (x != nullptr) return get<N>(x + at);
  Floats<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.at[i] = otherwise;
  return out;
}
// The bits that store() gives for two neighbours, the first one in the lower half. A NaN may get
// other bits.
__device__ __forceinline__ uint32_t store_pair(float first, float second) {
#ifdef FRUGAL_CUDA_EMULATOR
  return store<BFloat16>(first).bits | uint32_t{store<BFloat16>(second).bits} << 16;
#else
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
#endif
}
template <int N, class T>
__device__ __forceinline__ void put(T* y, const Floats<N>& v) {
  if constexpr (std::is_same_v<T, BFloat16> && N % 2 == 0) {
    Vector<uint32_t, N / 2> out;
    bool has_nan = false;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      out.at[i / 2] = store_pair(v.at[i], v.at[i + 1]);
      const bool pair = is_nan(v.at[i]) || is_nan(v.at[i + 1]);  // one comparison of both
      has_nan = has_nan || pair;
    }
    if (!has_nan) {
      put_raw(y, out);
      return;
    }
  }
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.at[i] = store<T>(v.at[i]);
  put_raw(y, out);
}

// Calls f(std::integral_constant<int, N>{}) with the N for rows of `c` elements. T is the type of
// the activations. The `tensors` are contiguous and may have other dtypes, too.
template <class T, class F>
void with_vectors(int64_t c, std::initializer_list<const Tensor*> tensors, F&& f) {
  constexpr int kSize = Pack<T>::kSize;
  bool fit = c % kSize == 0;
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    const size_t bytes = kSize * size_of(tensor->dtype());
    fit = fit && reinterpret_cast<uintptr_t>(tensor->raw()) % (bytes < 16 ? bytes : 16) == 0;
  }
  if (fit)
    f(std::integral_constant<int, kSize>{});
  else
    f(std::integral_constant<int, 1>{});
}

template <class T>
T* mut_or_null(const Tensor& x) {
  return x.defined() ? x.mut<T>() : nullptr;
}

}  // namespace frugal::ops::cuda
