#include "ops/image/shortcut.h"

#include <algorithm>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"

namespace frugal::ops {
namespace {

// Calls f(coarse pixel, fine pixel) for every pixel of `coarse` [N, OH, OW, ...] and the pixel of
// `fine` from which it is taken.
template <class F>
void for_pixels(const Shape& coarse, const Shape& fine, int64_t stride, F f) {
  parallel_for(0, coarse[0] * coarse[1], 4, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t n = row / coarse[1], h = row % coarse[1] * stride;
      for (int64_t w = 0; w < coarse[2]; ++w)
        f(row * coarse[2] + w, (n * fine[1] + h) * fine[2] + w * stride);
    }
  });
}

}  // namespace

void subsample_pad_kernel(Cpu, const Tensor& y, const Tensor& x, int64_t stride, int64_t before) {
  with_dtype(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t c = x.shape()[3], k = y.shape()[3];
    for_pixels(y.shape(), x.shape(), stride, [&](int64_t to, int64_t from) {
      T* out = y.mut<T>() + to * k;
      std::fill_n(out, before, T{0});
      std::copy_n(x.data<T>() + from * c, c, out + before);
      std::fill_n(out + before + c, k - before - c, T{0});
    });
  });
}

void subsample_pad_backward_kernel(Cpu, const Tensor& dx, const Tensor& dy, int64_t stride,
                                   int64_t before) {
  with_dtype(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t c = dx.shape()[3], k = dy.shape()[3];
    for_pixels(dy.shape(), dx.shape(), stride, [&](int64_t from, int64_t to) {
      std::copy_n(dy.data<T>() + from * k + before, c, dx.mut<T>() + to * c);
    });
  });
}

Tensor subsample_pad(const Tensor& x, int64_t stride, int64_t before, int64_t after) {
  check_dim("subsample_pad", "x", x, 4);
  check_real("subsample_pad", "x", x);
  FRUGAL_CHECK(stride >= 1 && before >= 0 && after >= 0,
               "[subsample_pad] expected a stride of at least 1 and padding of at least 0, got {}, "
               "{} and {}",
               stride, before, after);
  const Tensor in = contiguous(x);
  const Shape& s = x.shape();
  Tensor y = Tensor::empty(
      {s[0], (s[1] + stride - 1) / stride, (s[2] + stride - 1) / stride, before + s[3] + after},
      x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { subsample_pad_kernel(backend, y, in, stride, before); });
  return y;
}

Tensor subsample_pad_backward(const Tensor& dy, const Shape& x_shape, int64_t stride,
                              int64_t before) {
  const Tensor gradient = contiguous(dy);
  Tensor dx = Tensor::zeros(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(), [&](auto backend) {
    subsample_pad_backward_kernel(backend, dx, gradient, stride, before);
  });
  return dx;
}

}  // namespace frugal::ops
