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

// N elements in their stored dtype, so that waiting values use few registers.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> get_raw(const T* x) {
  return *reinterpret_cast<const Vector<T, N>*>(x);
}
template <int N, class T>
__device__ __forceinline__ Floats<N> get(const T* x) {
  const Vector<T, N> v = get_raw<N>(x);
  Floats<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.at[i] = load(v.at[i]);
  return out;
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
// The bits that store() gives for two neighbours, the first one in the lower half. Of NaN others.
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
      has_nan = has_nan || is_nan(v.at[i]) || is_nan(v.at[i + 1]);
    }
    if (!has_nan) {
      *reinterpret_cast<Vector<uint32_t, N / 2>*>(y) = out;
      return;
    }
  }
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.at[i] = store<T>(v.at[i]);
  *reinterpret_cast<Vector<T, N>*>(y) = out;
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
