// A convolution as plain loops. They are the reference that tests compare with, and the f64 path.
#pragma once
#include <algorithm>

#include "core/parallel.h"
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops::reference {

// Calls f(y index, weight index, x index) for every triple of the output pixels of image n whose
// window cell lies in the image. y [N, OH, OW, K], w [K, R, S, C/groups], x [N, H, W, C].
template <class F>
void for_triples(int64_t n, const Shape& y, const Shape& w, const Shape& x, const Conv2dOptions& o,
                 F f) {
  const int64_t per_group_k = w[0] / o.groups, per_group_c = w[3];
  for (int64_t oh = 0; oh < y[1]; ++oh)
    for (int64_t ow = 0; ow < y[2]; ++ow)
      for (int64_t r = 0; r < w[1]; ++r)
        for (int64_t s = 0; s < w[2]; ++s) {
          const int64_t h = oh * o.stride[0] - o.padding[0] + r * o.dilation[0];
          const int64_t v = ow * o.stride[1] - o.padding[1] + s * o.dilation[1];
          if (h < 0 || h >= x[1] || v < 0 || v >= x[2]) continue;
          for (int64_t k = 0; k < w[0]; ++k)
            for (int64_t c = 0; c < per_group_c; ++c)
              f(((n * y[1] + oh) * y[2] + ow) * y[3] + k, ((k * w[1] + r) * w[2] + s) * w[3] + c,
                ((n * x[1] + h) * x[2] + v) * x[3] + k / per_group_k * per_group_c + c);
        }
}

template <class T>
void conv2d(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
            const Conv2dOptions& o) {
  T* py = y.mut<T>();
  const T *px = x.data<T>(), *pw = w.data<T>();
  for (int64_t i = 0; i < y.numel(); ++i)
    py[i] = bias.defined() ? bias.data<T>()[i % y.shape()[3]] : T{0};
  parallel_for(0, y.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for_triples(n, y.shape(), w.shape(), x.shape(), o,
                  [&](int64_t iy, int64_t iw, int64_t ix) { py[iy] += pw[iw] * px[ix]; });
  });
}

template <class T>
void conv2d_backward_input(const Tensor& dx, const Tensor& dy, const Tensor& w,
                           const Conv2dOptions& o) {
  T* px = dx.mut<T>();
  const T *py = dy.data<T>(), *pw = w.data<T>();
  std::fill_n(px, dx.numel(), T{0});
  parallel_for(0, dy.shape()[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n)
      for_triples(n, dy.shape(), w.shape(), dx.shape(), o,
                  [&](int64_t iy, int64_t iw, int64_t ix) { px[ix] += pw[iw] * py[iy]; });
  });
}

template <class T>
void conv2d_backward_weight(const Tensor& dw, const Tensor& dy, const Tensor& x,
                            const Conv2dOptions& o) {
  T* pw = dw.mut<T>();
  const T *py = dy.data<T>(), *px = x.data<T>();
  std::fill_n(pw, dw.numel(), T{0});
  for (int64_t n = 0; n < dy.shape()[0]; ++n)
    for_triples(n, dy.shape(), dw.shape(), x.shape(), o,
                [&](int64_t iy, int64_t iw, int64_t ix) { pw[iw] += px[ix] * py[iy]; });
}

}  // namespace frugal::ops::reference
