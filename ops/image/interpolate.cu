#include "ops/image/interpolate.h"

#include "ops/cuda/cuda_mask.h"
#include "ops/image/interpolate_windows.h"

namespace frugal::ops {
namespace {

// Images [N, h, w, C] and their interpolation [N, out_h, out_w, C]. A thread has kWidth channels.
struct Sizes {
  TapAxis vertical, horizontal;
  int64_t c;
};

Sizes sizes_of(const Shape& x, const Shape& y, const InterpolateOptions& options) {
  const bool bilinear = options.mode == Interpolation::bilinear;
  return {{x[1], y[1], bilinear, options.align_corners},
          {x[2], y[2], bilinear, options.align_corners},
          x[3]};
}

template <class T, int kWidth>
struct Interpolate {
  Sizes s;
  const T* x;
  T* y;
  __device__ void add(float* sum, double weight, int64_t row, int64_t column) const {
    const auto in = cuda::load_run<kWidth>(x + (row * s.horizontal.extent + column) * s.c);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) sum[k] += static_cast<float>(weight) * cuda::load(in.at[k]);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t runs = s.c / kWidth, pixel = i / runs, row = pixel / s.horizontal.outputs;
    const Tap v = s.vertical.tap(row % s.vertical.outputs);
    const Tap u = s.horizontal.tap(pixel % s.horizontal.outputs);
    const int64_t first = row / s.vertical.outputs * s.vertical.extent;
    Interpolate at = *this;
    at.x += i % runs * kWidth;
    float sum[kWidth]{};
    at.add(sum, (1 - v.share) * (1 - u.share), first + v.low, u.low);
    if (u.share > 0) at.add(sum, (1 - v.share) * u.share, first + v.low, u.high);
    if (v.share > 0) at.add(sum, v.share * (1 - u.share), first + v.high, u.low);
    if (v.share > 0 && u.share > 0) at.add(sum, v.share * u.share, first + v.high, u.high);
    cuda::Run<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = cuda::store<T>(sum[k]);
    cuda::store_run(y + i * kWidth, out);
  }
};

// The gradient of a pixel: the sum over the outputs that read it, in their order.
template <class T, int kWidth>
struct InterpolateGradient {
  Sizes s;
  const T* dy;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t runs = s.c / kWidth, pixel = i / runs, row = pixel / s.horizontal.extent;
    const int64_t h = row % s.vertical.extent, w = pixel % s.horizontal.extent;
    const int64_t first = row / s.vertical.extent * s.vertical.outputs;
    float sum[kWidth]{};
    for (int64_t oh = s.vertical.begin_of(h); oh < s.vertical.end_of(h); ++oh) {
      const double down = s.vertical.weight(oh, h);
      if (down == 0) continue;
      for (int64_t ow = s.horizontal.begin_of(w); ow < s.horizontal.end_of(w); ++ow) {
        const auto weight = static_cast<float>(down * s.horizontal.weight(ow, w));
        if (weight == 0) continue;
        const int64_t from = ((first + oh) * s.horizontal.outputs + ow) * s.c + i % runs * kWidth;
        const auto in = cuda::load_run<kWidth>(dy + from);
#pragma unroll
        for (int k = 0; k < kWidth; ++k) sum[k] += weight * cuda::load(in.at[k]);
      }
    }
    cuda::Run<T, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) out.at[k] = cuda::store<T>(sum[k]);
    cuda::store_run(dx + i * kWidth, out);
  }
};

// Calls f(T{}, width): 16 bytes of channels where extents and places allow it.
template <class F>
void with_channels(const Tensor& a, const Tensor& b, F f) {
  cuda::with_activation(a.dtype(), [&](auto zero) {
    constexpr int kWidth = cuda::Pack<decltype(zero)>::kSize;
    if (a.size(3) % kWidth == 0 && cuda::is_packable(a.raw()) && cuda::is_packable(b.raw()))
      f(zero, std::integral_constant<int, kWidth>{});
    else
      f(zero, std::integral_constant<int, 1>{});
  });
}

}  // namespace

void interpolate_kernel(Cuda, const Tensor& x, const InterpolateOptions& options, const Tensor& y) {
  with_channels(x, y, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kWidth = decltype(width)::value;
    cuda::for_each(
        y.numel() / kWidth,
        Interpolate<T, kWidth>{sizes_of(x.shape(), y.shape(), options), x.data<T>(), y.mut<T>()});
  });
}

void interpolate_backward_kernel(Cuda, const Tensor& dy, const InterpolateOptions& options,
                                 const Tensor& dx) {
  with_channels(dy, dx, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int kWidth = decltype(width)::value;
    cuda::for_each(dx.numel() / kWidth,
                   InterpolateGradient<T, kWidth>{sizes_of(dx.shape(), dy.shape(), options),
                                                  dy.data<T>(), dx.mut<T>()});
  });
}

}  // namespace frugal::ops
