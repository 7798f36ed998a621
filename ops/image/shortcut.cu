#include "ops/image/shortcut.h"

#include "core/cuda/cuda_kernel.h"

namespace frugal::ops {
namespace {

// Coarse pixels [N, OH, OW], and the fine pixels [N, H, W] from which they are taken.
struct Pixels {
  int64_t out_h, out_w, h, w, stride;

  __device__ int64_t fine(int64_t coarse) const {
    const int64_t row = coarse / out_w;
    return (row / out_h * h + row % out_h * stride) * w + coarse % out_w * stride;
  }
};

Pixels pixels_of(const Shape& coarse, const Shape& fine, int64_t stride) {
  return {coarse[1], coarse[2], fine[1], fine[2], stride};
}

template <class T>
struct ShortcutForward {
  Pixels pixels;
  int64_t c, wide, before;  // channels of x and y
  const T* x;
  T* y;
  __device__ void operator()(int64_t i) const {
    const int64_t channel = i % wide - before;
    y[i] = channel < 0 || channel >= c ? T{} : x[pixels.fine(i / wide) * c + channel];
  }
};

template <class T>
struct ShortcutBackward {
  Pixels pixels;
  int64_t c, wide, before;
  const T* dy;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t pixel = i / c, channel = i % c;
    dx[pixels.fine(pixel) * c + channel] = dy[pixel * wide + before + channel];
  }
};

}  // namespace

void subsample_pad_kernel(Cuda, const Tensor& y, const Tensor& x, int64_t stride, int64_t before) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(y.numel(), ShortcutForward<T>{pixels_of(y.shape(), x.shape(), stride), x.size(3),
                                                 y.size(3), before, x.data<T>(), y.mut<T>()});
  });
}

void subsample_pad_backward_kernel(Cuda, const Tensor& dx, const Tensor& dy, int64_t stride,
                                   int64_t before) {
  const int64_t pixels = dy.size(0) * dy.size(1) * dy.size(2);
  cuda::with_activation(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(pixels * dx.size(3),
                   ShortcutBackward<T>{pixels_of(dy.shape(), dx.shape(), stride), dx.size(3),
                                       dy.size(3), before, dy.data<T>(), dx.mut<T>()});
  });
}

}  // namespace frugal::ops
