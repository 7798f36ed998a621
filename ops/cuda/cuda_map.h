// Elementwise loops on CUDA, 16 bytes at a time where the addresses allow it. Values are stored as
// f32 or bf16 and computed in f32. For .cu files.
#pragma once
#include "core/cuda/cuda_kernel.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

template <class T, class F, class... X>
__device__ __forceinline__ Pack<T> map_pack(const F& f, const Pack<X>&... in) {
  Pack<T> out;
#pragma unroll
  for (int i = 0; i < Pack<T>::kSize; ++i) out.at[i] = store<T>(f(load(in.at[i])...));
  return out;
}

template <class T, class F, class... X>
__global__ void map_kernel(int64_t n, bool packs, F f, T* y, const X*... x) {
  constexpr int64_t kSize = Pack<T>::kSize;
  const int64_t whole = packs ? n / kSize : 0;
  for (int64_t p = first_index(); p < whole; p += index_stride())
    store_pack(y + p * kSize, map_pack<T>(f, load_pack(x + p * kSize)...));
  for (int64_t i = whole * kSize + first_index(); i < n; i += index_stride())
    y[i] = store<T>(f(load(x[i])...));
}

// y[i] = f(x[i]...) for contiguous tensors of one shape and dtype. y may be one of the inputs.
template <class F, class... X>
void map(const F& f, const Tensor& y, const X&... x) {
  with_activation(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const bool packs = is_packable(y.raw()) && (is_packable(x.raw()) && ...);
    const int64_t n = y.numel(), items = packs ? n / Pack<T>::kSize + 1 : n;
    launch(map_kernel<T, F, std::conditional_t<true, T, X>...>,
           {n == 0 ? dim3(0) : blocks_for(items)}, n, packs, f, y.template mut<T>(),
           x.template data<T>()...);
  });
}

}  // namespace frugal::ops::cuda
