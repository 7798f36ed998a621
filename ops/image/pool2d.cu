#include "ops/image/pool2d.h"

#include <limits>

#include "core/finite.h"
#include "ops/cuda/cuda_mask.h"
#include "ops/image/pool2d_windows.h"

namespace frugal::ops {
namespace {

// The place of a thread: kWidth channels of one pixel.
struct Place {
  int64_t n, h, w, channel;
};
__device__ __forceinline__ Place place_of(int64_t i, int64_t rows, int64_t cols, int64_t runs,
                                          int width) {
  const int64_t pixel = i / runs, line = pixel / cols;
  return {line / rows, line % rows, pixel % cols, i % runs * width};
}

template <class T, int kWidth, class Index>
struct MaxPool {
  PoolExtents s;
  Pair kernel, stride, padding;
  const T* x;
  T* y;
  Index* index;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, s.out_h, s.out_w, s.c / kWidth, kWidth);
    const WindowSpan h = window(at.h, s.h, kernel[0], stride[0], padding[0]);
    const WindowSpan w = window(at.w, s.w, kernel[1], stride[1], padding[1]);
    const auto start =
        static_cast<Index>((h.inside.begin - h.first) * kernel[1] + w.inside.begin - w.first);
    float best[kWidth];
    cuda::Run<Index, kWidth> cell;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      best[k] = -std::numeric_limits<float>::infinity();
      cell.at[k] = start;
    }
    for (int64_t row = h.inside.begin; row < h.inside.end; ++row)
      for (int64_t col = w.inside.begin; col < w.inside.end; ++col) {
        const auto in =
            cuda::load_run<kWidth>(x + ((at.n * s.h + row) * s.w + col) * s.c + at.channel);
        const auto here = static_cast<Index>((row - h.first) * kernel[1] + col - w.first);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const float value = cuda::load(in.at[k]);
          // NaN wins, and stays: nothing is above it.
          const bool wins = !(value <= best[k]) && !is_nan(best[k]);
          best[k] = wins ? value : best[k];
          cell.at[k] = wins ? here : cell.at[k];
        }
      }
    const int64_t to = ((at.n * s.out_h + at.h) * s.out_w + at.w) * s.c + at.channel;
    cuda::Run<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = cuda::store<T>(best[k]);
    cuda::store_run(y + to, out);
    cuda::store_run(index + to, cell);
  }
};

// The gradient of a pixel: the sum over the windows that hold it, in their order.
template <class T, int kWidth, class Index>
struct MaxPoolGradient {
  PoolExtents s;
  Pair kernel, stride, padding;
  const T* dy;
  const Index* index;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, s.h, s.w, s.c / kWidth, kWidth);
    const Span h = windows_at(at.h, s.out_h, kernel[0], stride[0], padding[0]);
    const Span w = windows_at(at.w, s.out_w, kernel[1], stride[1], padding[1]);
    float sum[kWidth]{};
    for (int64_t oh = h.begin; oh < h.end; ++oh)
      for (int64_t ow = w.begin; ow < w.end; ++ow) {
        const int64_t from = ((at.n * s.out_h + oh) * s.out_w + ow) * s.c + at.channel;
        const int64_t row = at.h - oh * stride[0] + padding[0];
        const int64_t col = at.w - ow * stride[1] + padding[1];
        const auto here = static_cast<Index>(row * kernel[1] + col);
        const auto cell = cuda::load_run<kWidth>(index + from);
        const auto in = cuda::load_run<kWidth>(dy + from);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] += cell.at[k] == here ? cuda::load(in.at[k]) : 0.0f;
      }
    cuda::Run<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = cuda::store<T>(sum[k]);
    cuda::store_run(dx + ((at.n * s.h + at.h) * s.w + at.w) * s.c + at.channel, out);
  }
};

template <class T, int kWidth>
struct MeanWindows {
  PoolExtents s;
  Windows windows;
  const T* x;
  T* y;
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, s.out_h, s.out_w, s.c / kWidth, kWidth);
    const MeanWindow m = mean_window(windows, s.h, s.w, at.h, at.w);
    float sum[kWidth]{};
    for (int64_t row = m.h.begin; row < m.h.end; ++row)
      for (int64_t col = m.w.begin; col < m.w.end; ++col) {
        const auto in =
            cuda::load_run<kWidth>(x + ((at.n * s.h + row) * s.w + col) * s.c + at.channel);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] += cuda::load(in.at[k]);
      }
    const float factor = 1.0f / static_cast<float>(m.area);
    cuda::Run<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = cuda::store<T>(sum[k] * factor);
    cuda::store_run(y + ((at.n * s.out_h + at.h) * s.out_w + at.w) * s.c + at.channel, out);
  }
};

template <class T, int kWidth>
struct MeanWindowsGradient {
  PoolExtents s;
  Windows windows;
  const T* dy;
  T* dx;
  __device__ Span holding(int64_t at, int axis, int64_t extent, int64_t outputs) const {
    const Pool2dOptions& o = windows.options;
    return windows.adaptive
               ? adaptive_windows_at(at, extent, outputs)
               : windows_at(at, outputs, o.kernel[axis], o.stride[axis], o.padding[axis]);
  }
  __device__ void operator()(int64_t i) const {
    const Place at = place_of(i, s.h, s.w, s.c / kWidth, kWidth);
    const Span h = holding(at.h, 0, s.h, s.out_h), w = holding(at.w, 1, s.w, s.out_w);
    float sum[kWidth]{};
    for (int64_t oh = h.begin; oh < h.end; ++oh)
      for (int64_t ow = w.begin; ow < w.end; ++ow) {
        const float factor = 1.0f / static_cast<float>(mean_window(windows, s.h, s.w, oh, ow).area);
        const auto in =
            cuda::load_run<kWidth>(dy + ((at.n * s.out_h + oh) * s.out_w + ow) * s.c + at.channel);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] += factor * cuda::load(in.at[k]);
      }
    cuda::Run<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = cuda::store<T>(sum[k]);
    cuda::store_run(dx + ((at.n * s.h + at.h) * s.w + at.w) * s.c + at.channel, out);
  }
};

// Calls f(T{}, width): 16 bytes of channels where extents and places allow it.
template <class F>
void with_channels(const Tensor& a, const Tensor& b, const Tensor& index, F f) {
  cuda::with_activation(a.dtype(), [&](auto zero) {
    constexpr int kWidth = cuda::Pack<decltype(zero)>::kSize;
    if (a.size(3) % kWidth == 0 && cuda::is_packable(a.raw()) && cuda::is_packable(b.raw()) &&
        (!index.defined() || reinterpret_cast<uintptr_t>(index.raw()) % (4 * kWidth) == 0))
      f(zero, std::integral_constant<int, kWidth>{});
    else
      f(zero, std::integral_constant<int, 1>{});
  });
}

template <class F>
void with_cells(const Tensor& index, F f) {
  if (index.dtype() == DType::u8) return f(uint8_t{});
  f(int32_t{});
}

}  // namespace

void max_pool2d_kernel(Cuda, const Tensor& x, const Pool2dOptions& options, const Tensor& y,
                       const Tensor& index) {
  with_channels(x, y, index, [&](auto zero, auto width) {
    with_cells(index, [&](auto cell) {
      using T = decltype(zero);
      using Index = decltype(cell);
      constexpr int kWidth = decltype(width)::value;
      cuda::for_each(y.numel() / kWidth,
                     MaxPool<T, kWidth, Index>{pool_extents(x.shape(), y.shape()), options.kernel,
                                               options.stride, options.padding, x.data<T>(),
                                               y.mut<T>(), index.mut<Index>()});
    });
  });
}

void max_pool2d_backward_kernel(Cuda, const Tensor& dy, const Tensor& index,
                                const Pool2dOptions& options, const Tensor& dx) {
  with_channels(dy, dx, index, [&](auto zero, auto width) {
    with_cells(index, [&](auto cell) {
      using T = decltype(zero);
      using Index = decltype(cell);
      constexpr int kWidth = decltype(width)::value;
      cuda::for_each(dx.numel() / kWidth,
                     MaxPoolGradient<T, kWidth, Index>{
                         pool_extents(dx.shape(), dy.shape()), options.kernel, options.stride,
                         options.padding, dy.data<T>(), index.data<Index>(), dx.mut<T>()});
    });
  });
}

void mean_windows_kernel(Cuda, const Tensor& x, const Windows& windows, const Tensor& y) {
  with_channels(x, y, {}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kWidth = decltype(width)::value;
    cuda::for_each(y.numel() / kWidth, MeanWindows<T, kWidth>{pool_extents(x.shape(), y.shape()),
                                                              windows, x.data<T>(), y.mut<T>()});
  });
}

void mean_windows_backward_kernel(Cuda, const Tensor& dy, const Windows& windows,
                                  const Tensor& dx) {
  with_channels(dy, dx, {}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kWidth = decltype(width)::value;
    cuda::for_each(dx.numel() / kWidth,
                   MeanWindowsGradient<T, kWidth>{pool_extents(dx.shape(), dy.shape()), windows,
                                                  dy.data<T>(), dx.mut<T>()});
  });
}

}  // namespace frugal::ops
