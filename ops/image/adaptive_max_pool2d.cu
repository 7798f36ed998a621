#include "ops/image/adaptive_max_pool2d.h"

#include <limits>

#include "core/cuda/cuda_kernel.h"
#include "core/finite.h"
#include "ops/image/pool2d_windows.h"

namespace frugal::ops {
namespace {

// One thread for each output.
template <class T, class Index>
struct Maximum {
  PoolExtents s;
  const T* x;
  T* y;
  Index* index;
  __device__ void operator()(int64_t i) const {
    const int64_t k = i % s.c, pixel = i / s.c, line = pixel / s.out_w, n = line / s.out_h;
    const Span h = adaptive_window(line % s.out_h, s.h, s.out_h);
    const Span w = adaptive_window(pixel % s.out_w, s.w, s.out_w);
    float best = -std::numeric_limits<float>::infinity();
    Index cell = 0;
    for (int64_t row = h.begin; row < h.end; ++row)
      for (int64_t col = w.begin; col < w.end; ++col) {
        const float value = cuda::load(x[((n * s.h + row) * s.w + col) * s.c + k]);
        // NaN wins, and stays: nothing is above it.
        if (value <= best || is_nan(best)) continue;
        best = value;
        cell = static_cast<Index>((row - h.begin) * (w.end - w.begin) + col - w.begin);
      }
    y[i] = cuda::store<T>(best);
    index[i] = cell;
  }
};

// One thread for each input: the sum over the windows that hold it, in their order.
template <class T, class Index>
struct Gradient {
  PoolExtents s;
  const T* dy;
  const Index* index;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t k = i % s.c, pixel = i / s.c, line = pixel / s.w, n = line / s.h;
    const int64_t row = line % s.h, col = pixel % s.w;
    const Span above = adaptive_windows_at(row, s.h, s.out_h);
    const Span beside = adaptive_windows_at(col, s.w, s.out_w);
    float sum = 0;
    for (int64_t oh = above.begin; oh < above.end; ++oh)
      for (int64_t ow = beside.begin; ow < beside.end; ++ow) {
        const Span h = adaptive_window(oh, s.h, s.out_h), w = adaptive_window(ow, s.w, s.out_w);
        const int64_t from = ((n * s.out_h + oh) * s.out_w + ow) * s.c + k;
        const int64_t here = (row - h.begin) * (w.end - w.begin) + col - w.begin;
        if (static_cast<int64_t>(index[from]) == here) sum += cuda::load(dy[from]);
      }
    dx[i] = cuda::store<T>(sum);
  }
};

}  // namespace

void adaptive_max_pool2d_kernel(Cuda, const Tensor& x, const Tensor& y, const Tensor& index) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_window_index(index, [&](auto number) {
      using Index = decltype(number);
      cuda::for_each(y.numel(), Maximum<T, Index>{pool_extents(x.shape(), y.shape()), x.data<T>(),
                                                  y.mut<T>(), index.mut<Index>()});
    });
  });
}

void adaptive_max_pool2d_backward_kernel(Cuda, const Tensor& dy, const Tensor& index,
                                         const Tensor& dx) {
  cuda::with_activation(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_window_index(index, [&](auto number) {
      using Index = decltype(number);
      cuda::for_each(dx.numel(),
                     Gradient<T, Index>{pool_extents(dx.shape(), dy.shape()), dy.data<T>(),
                                        index.data<Index>(), dx.mut<T>()});
    });
  });
}

}  // namespace frugal::ops
