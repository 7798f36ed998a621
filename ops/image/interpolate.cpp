#include "ops/image/interpolate.h"

#include <algorithm>
#include <vector>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/image/interpolate_windows.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

TapAxis axis_of(int64_t extent, int64_t outputs, const InterpolateOptions& options) {
  return {extent, outputs, options.mode == Interpolation::bilinear, options.align_corners};
}

std::vector<Tap> taps_of(const TapAxis& axis) {
  std::vector<Tap> taps;
  for (int64_t i = 0; i < axis.outputs; ++i) taps.push_back(axis.tap(i));
  return taps;
}

}  // namespace

void interpolate_kernel(Cpu, const Tensor& x, const InterpolateOptions& options, const Tensor& y) {
  if (x.dtype() == DType::bf16)
    return in_f32_slices({x}, {y}, [&](const auto& in, const auto& out) {
      interpolate_kernel(Cpu{}, in[0], options, out[0]);
    });
  const Shape &xs = x.shape(), &ys = y.shape();
  const int64_t c = xs[3], width = xs[2], out_h = ys[1], out_w = ys[2];
  const std::vector<Tap> rows = taps_of(axis_of(xs[1], out_h, options));
  const std::vector<Tap> columns = taps_of(axis_of(width, out_w, options));
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(0, ys[0] * out_h, rows_at_once(kArithmeticGrain, out_w * c),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const Tap& v = rows[static_cast<size_t>(row % out_h)];
                     const T* image = x.data<T>() + row / out_h * xs[1] * width * c;
                     const T *top = image + v.low * width * c, *bottom = image + v.high * width * c;
                     T* __restrict out = y.mut<T>() + row * out_w * c;
                     for (const Tap& u : columns) {
                       const auto down = static_cast<T>(v.share), right = static_cast<T>(u.share);
                       const T a = (1 - down) * (1 - right), b = (1 - down) * right;
                       const T d = down * (1 - right), e = down * right;
                       const T *tl = top + u.low * c, *tr = top + u.high * c;
                       const T *bl = bottom + u.low * c, *br = bottom + u.high * c;
                       if (v.low == v.high && u.low == u.high)
                         std::copy_n(tl, c, out);
                       else
                         for (int64_t k = 0; k < c; ++k)
                           out[k] = a * tl[k] + b * tr[k] + d * bl[k] + e * br[k];
                       out += c;
                     }
                   }
                 });
  });
}

// Each row of dx gathers from the rows of dy that read it, so rows are independent.
void interpolate_backward_kernel(Cpu, const Tensor& dy, const InterpolateOptions& options,
                                 const Tensor& dx) {
  if (dx.dtype() == DType::bf16)
    return in_f32_slices({dy}, {dx}, [&](const auto& in, const auto& out) {
      interpolate_backward_kernel(Cpu{}, in[0], options, out[0]);
    });
  const Shape &xs = dx.shape(), &ys = dy.shape();
  const int64_t c = xs[3], height = xs[1], width = xs[2], out_w = ys[2];
  const TapAxis vertical = axis_of(height, ys[1], options);
  const std::vector<Tap> columns = taps_of(axis_of(width, out_w, options));
  with_real(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    parallel_for(0, xs[0] * height, rows_at_once(kArithmeticGrain, out_w * c),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t row = begin; row < end; ++row) {
                     const int64_t h = row % height;
                     T* __restrict out = dx.mut<T>() + row * width * c;
                     std::fill_n(out, width * c, T{0});
                     for (int64_t oh = vertical.begin_of(h); oh < vertical.end_of(h); ++oh) {
                       const auto weight = static_cast<T>(vertical.weight(oh, h));
                       if (weight == 0) continue;
                       const T* in = dy.data<T>() + (row / height * ys[1] + oh) * out_w * c;
                       for (const Tap& u : columns) {
                         const T high = weight * static_cast<T>(u.share), low = weight - high;
                         for (int64_t k = 0; k < c; ++k) out[u.low * c + k] += low * in[k];
                         if (u.high != u.low)
                           for (int64_t k = 0; k < c; ++k) out[u.high * c + k] += high * in[k];
                         in += c;
                       }
                     }
                   }
                 });
  });
}

Tensor interpolate(const Tensor& x, int64_t out_h, int64_t out_w,
                   const InterpolateOptions& options) {
  check_dim("interpolate", "x", x, 4);
  check_real("interpolate", "x", x);
  FRUGAL_CHECK(out_h >= 1 && out_w >= 1 && x.size(1) >= 1 && x.size(2) >= 1,
               "[interpolate] expected an image and an output of at least 1x1, got {} and {}x{}",
               x.shape(), out_h, out_w);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty({x.size(0), out_h, out_w, x.size(3)}, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { interpolate_kernel(backend, in, options, y); });
  return y;
}

Tensor interpolate_backward(const Tensor& dy, const Shape& x_shape,
                            const InterpolateOptions& options) {
  constexpr const char* kOp = "interpolate backward";
  check_dim(kOp, "dy", dy, 4);
  check_real(kOp, "dy", dy);
  check_shape(kOp, "dy", dy, {x_shape[0], dy.size(1), dy.size(2), x_shape.back()});
  const Tensor gradient = contiguous(dy);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { interpolate_backward_kernel(backend, gradient, options, dx); });
  return dx;
}

}  // namespace frugal::ops
