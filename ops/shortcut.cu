#include "ops/shortcut.h"

#include "ops/cuda_index.h"

namespace frugal::ops {
namespace {

// Coarse pixels [N, OH, OW] and the fine ones [N, H, W] that they come from.
struct Pixels {
  int64_t out_h, out_w, h, w, stride;

  template <class I>
  __device__ int64_t fine(I coarse) const {
    const I column = coarse % static_cast<I>(out_w), row = coarse / static_cast<I>(out_w);
    const I n = row / static_cast<I>(out_h), line = row % static_cast<I>(out_h);
    return (static_cast<int64_t>(n) * h + static_cast<int64_t>(line) * stride) * w +
           static_cast<int64_t>(column) * stride;
  }
};

Pixels pixels_of(const Shape& coarse, const Shape& fine, int64_t stride) {
  return {coarse[1], coarse[2], fine[1], fine[2], stride};
}

template <class T>
struct Forward {
  Pixels pixels;
  int64_t c, wide, before;  // channels of x and y
  const T* x;
  T* y;
  template <class I>
  __device__ void operator()(I i) const {
    const I pixel = i / static_cast<I>(wide);
    const int64_t channel = static_cast<int64_t>(i % static_cast<I>(wide)) - before;
    y[i] = channel < 0 || channel >= c ? T{} : x[pixels.fine(pixel) * c + channel];
  }
};

template <class T>
struct Backward {
  Pixels pixels;
  int64_t c, wide, before;
  const T* dy;
  T* dx;
  template <class I>
  __device__ void operator()(I i) const {
    const I pixel = i / static_cast<I>(c);
    const auto channel = static_cast<int64_t>(i % static_cast<I>(c));
    dx[pixels.fine(pixel) * c + channel] =
        dy[static_cast<int64_t>(pixel) * wide + before + channel];
  }
};

}  // namespace

void subsample_pad_kernel(Cuda, const Tensor& y, const Tensor& x, int64_t stride, int64_t before) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_indices(y.numel(), Forward<T>{pixels_of(y.shape(), x.shape(), stride), x.size(3),
                                            y.size(3), before, x.data<T>(), y.mut<T>()});
  });
}

void subsample_pad_backward_kernel(Cuda, const Tensor& dx, const Tensor& dy, int64_t stride,
                                   int64_t before) {
  const int64_t pixels = dy.size(0) * dy.size(1) * dy.size(2);
  cuda::with_activation(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_indices(pixels * dx.size(3),
                      Backward<T>{pixels_of(dy.shape(), dx.shape(), stride), dx.size(3), dy.size(3),
                                  before, dy.data<T>(), dx.mut<T>()});
  });
}

}  // namespace frugal::ops
