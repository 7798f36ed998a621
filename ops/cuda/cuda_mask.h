// Loops over 1-bit masks (ops/dense/bitmask.h) on CUDA. A thread works on eight rows of a few
// columns, so it owns whole bytes. A warp lies across columns. For .cu files.
#pragma once
#include "core/cuda/cuda_kernel.h"
#include "ops/dense/bitmask.h"

namespace frugal::ops::cuda {

using namespace frugal::cuda;

// kWidth neighbouring elements that are read or written at once.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Run {
  T at[kWidth];
};
template <int kWidth, class T>
__device__ __forceinline__ Run<T, kWidth> load_run(const T* x) {
  return *reinterpret_cast<const Run<T, kWidth>*>(x);
}
template <class T, int kWidth>
__device__ __forceinline__ void store_run(T* y, const Run<T, kWidth>& run) {
  *reinterpret_cast<Run<T, kWidth>*>(y) = run;
}

// The index of the element that the first bit of byte `byte` describes.
__device__ __forceinline__ int64_t element_of(int64_t byte, int64_t cols) {
  return byte / cols * 8 * cols + byte % cols;
}

template <class T, int kWidth, class F>
__global__ void write_mask_kernel(int64_t bytes, int64_t cols, int64_t n, F f, const T* x, T* y,
                                  uint8_t* mask) {
  for (int64_t b = first_index() * kWidth; b < bytes; b += index_stride() * kWidth) {
    const int64_t first = element_of(b, cols);
    Run<uint8_t, kWidth> set{};
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int64_t i = first + r * cols;
      if (kWidth == 1 && i >= n) continue;
      const auto in = load_run<kWidth>(x + i);
      Run<T, kWidth> out;
#pragma unroll
      for (int k = 0; k < kWidth; ++k) {
        const float value = load(in.at[k]);
        out.at[k] = store<T>(f.value(value));
        if (f.keeps(value)) set.at[k] = static_cast<uint8_t>(set.at[k] | 1 << r);
      }
      store_run(y + i, out);
    }
    store_run(mask + b, set);
  }
}

template <class T, int kWidth, class F, class... X>
__global__ void read_mask_kernel(int64_t bytes, int64_t cols, int64_t n, F f, const uint8_t* mask,
                                 T* y, const X*... x) {
  for (int64_t b = first_index() * kWidth; b < bytes; b += index_stride() * kWidth) {
    const int64_t first = element_of(b, cols);
    const auto set = load_run<kWidth>(mask + b);
#pragma unroll
    for (int r = 0; r < 8; ++r) {
      const int64_t i = first + r * cols;
      if (kWidth == 1 && i >= n) continue;
      const auto combine = [&](const auto&... in) {
        Run<T, kWidth> out;
#pragma unroll
        for (int k = 0; k < kWidth; ++k)
          out.at[k] = store<T>(f((set.at[k] >> r & 1) != 0, load(in.at[k])...));
        return out;
      };
      store_run(y + i, combine(load_run<kWidth>(x + i)...));
    }
  }
}

// Calls f(T{}, width), where `width` is the number of columns that a thread takes at once: 16 bytes
// of T, or 1 where addresses or extents do not allow that.
template <class F>
void with_mask_width(const Tensor& y, const Tensor& mask, bool packable, F f) {
  with_activation(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = Pack<T>::kSize;
    const BitmaskLayout layout = bitmask_layout(y.shape());
    const bool wide = packable && is_packable(y.raw()) && layout.cols % kWidth == 0 &&
                      layout.rows * layout.cols == y.numel() &&
                      reinterpret_cast<uintptr_t>(mask.raw()) % kWidth == 0;
    if (wide)
      f(zero, std::integral_constant<int, kWidth>{}, layout);
    else
      f(zero, std::integral_constant<int, 1>{}, layout);
  });
}

// Writes y = f.value(x), and f.keeps(x) as the bits of the mask.
template <class F>
void write_mask(const F& f, const Tensor& x, const Tensor& y, const Tensor& mask) {
  with_mask_width(y, mask, is_packable(x.raw()), [&](auto zero, auto width, BitmaskLayout layout) {
    using T = decltype(zero);
    constexpr int kWidth = decltype(width)::value;
    launch(write_mask_kernel<T, kWidth, F>, {blocks_for(layout.bytes() / kWidth)}, layout.bytes(),
           layout.cols, x.numel(), f, x.data<T>(), y.mut<T>(), mask.mut<uint8_t>());
  });
}

// Writes y = f(bit, x...).
template <class F, class... X>
void read_mask(const F& f, const Tensor& mask, const Tensor& y, const X&... x) {
  const bool packable = (is_packable(x.raw()) && ...);
  with_mask_width(y, mask, packable, [&](auto zero, auto width, BitmaskLayout layout) {
    using T = decltype(zero);
    constexpr int kWidth = decltype(width)::value;
    launch(read_mask_kernel<T, kWidth, F, std::conditional_t<true, T, X>...>,
           {blocks_for(layout.bytes() / kWidth)}, layout.bytes(), layout.cols, y.numel(), f,
           mask.data<uint8_t>(), y.template mut<T>(), x.template data<T>()...);
  });
}

}  // namespace frugal::ops::cuda
