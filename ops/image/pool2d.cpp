#include "ops/image/pool2d.h"

#include <algorithm>
#include <limits>

#include "core/dtype_switch.h"
#include "core/finite.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/reduce.h"
#include "ops/f32_blocks.h"
#include "ops/image/pool2d_loops.h"
#include "ops/image/pool2d_windows.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

bool is_fast(const Tensor& x, const Tensor& index) {
  return x.dtype() != DType::f64 && index.dtype() == DType::u8;
}

simd::PoolImage image_of(const Shape& x, const Shape& y, const Pool2dOptions& options) {
  return {x[1], x[2], y[1], y[2], x[3], options};
}

// The plain loops, for f64 and for windows whose index needs more than a byte.
template <class T, class Index>
void max_pool(const Tensor& x, const Pool2dOptions& o, const Tensor& y, const Tensor& index) {
  const Shape &xs = x.shape(), &ys = y.shape();
  const int64_t c = xs[3];
  parallel_for(0, ys[0] * ys[1], 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const WindowSpan h = window(row % ys[1], xs[1], o.kernel[0], o.stride[0], o.padding[0]);
      for (int64_t ow = 0; ow < ys[2]; ++ow) {
        const WindowSpan w = window(ow, xs[2], o.kernel[1], o.stride[1], o.padding[1]);
        T* __restrict best = y.mut<T>() + (row * ys[2] + ow) * c;
        Index* __restrict cell = index.mut<Index>() + (row * ys[2] + ow) * c;
        std::fill_n(best, c, -std::numeric_limits<T>::infinity());
        const int64_t start = (h.inside.begin - h.first) * o.kernel[1] + w.inside.begin - w.first;
        std::fill_n(cell, c, static_cast<Index>(start));
        for (int64_t i = h.inside.begin; i < h.inside.end; ++i)
          for (int64_t j = w.inside.begin; j < w.inside.end; ++j) {
            const T* __restrict p = x.data<T>() + ((row / ys[1] * xs[1] + i) * xs[2] + j) * c;
            const auto here = static_cast<Index>((i - h.first) * o.kernel[1] + j - w.first);
            for (int64_t k = 0; k < c; ++k) {
              const bool wins = !(p[k] <= best[k]);  // NaN wins, and stays: nothing is above it
              const bool settled = is_nan(best[k]);
              best[k] = wins && !settled ? p[k] : best[k];
              cell[k] = wins && !settled ? here : cell[k];
            }
          }
      }
    }
  });
}

template <class T, class Index>
void max_pool_backward(const Tensor& dy, const Tensor& index, const Pool2dOptions& o,
                       const Tensor& dx) {
  const Shape &xs = dx.shape(), &ys = dy.shape();
  const int64_t c = xs[3];
  // One task for each image, because windows of one image may overlap.
  parallel_for(0, xs[0], 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* image = dx.mut<T>() + n * xs[1] * xs[2] * c;
      std::fill_n(image, xs[1] * xs[2] * c, T{0});
      for (int64_t oh = 0; oh < ys[1]; ++oh)
        for (int64_t ow = 0; ow < ys[2]; ++ow) {
          const int64_t at = ((n * ys[1] + oh) * ys[2] + ow) * c;
          for (int64_t k = 0; k < c; ++k) {
            const auto cell = static_cast<int64_t>(index.data<Index>()[at + k]);
            const int64_t h = oh * o.stride[0] - o.padding[0] + cell / o.kernel[1];
            const int64_t w = ow * o.stride[1] - o.padding[1] + cell % o.kernel[1];
            image[(h * xs[2] + w) * c + k] += dy.data<T>()[at + k];
          }
        }
    }
  });
}

Tensor mean_windows(const Tensor& x, const Windows& windows) {
  const Tensor in = contiguous(x);
  Tensor y =
      Tensor::empty({x.size(0), windows.out_h, windows.out_w, x.size(3)}, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { mean_windows_kernel(backend, in, windows, y); });
  return y;
}

Tensor mean_windows_backward(const Tensor& dy, const Shape& x_shape, const Windows& windows) {
  const Tensor gradient = contiguous(dy);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { mean_windows_backward_kernel(backend, gradient, windows, dx); });
  return dx;
}

Windows windows_of(const Shape& y, const Pool2dOptions& options) {
  return {y[1], y[2], options, false};
}

}  // namespace

void max_pool2d_kernel(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y,
                       const Tensor& index) {
  if (is_fast(x, index)) {
    const simd::PoolImage image = image_of(x.shape(), y.shape(), options);
    const int64_t row = image.out_w * image.c;
    parallel_for(
        0, y.numel() / std::max<int64_t>(row, 1),
        rows_at_once(kArithmeticGrain, row * options.kernel[1]), [&](int64_t begin, int64_t end) {
          const auto rows = [&]<class T>(const T* from, T* to) {
            for (int64_t i = begin; i < end; ++i)
              simd::max_pool_row(image, from + i / image.out_h * image.h * image.w * image.c,
                                 i % image.out_h, to + i * row, index.mut<uint8_t>() + i * row);
          };
          x.dtype() == DType::bf16 ? rows(x.data<BFloat16>(), y.mut<BFloat16>())
                                   : rows(x.data<float>(), y.mut<float>());
        });
    return;
  }
  if (x.dtype() == DType::bf16)
    return in_f32_slices({x}, {y, index}, [&](const auto& in, const auto& out) {
      max_pool2d_kernel(Cpu{}, in[0], options, out[0], out[1]);
    });
  with_real(x.dtype(), [&](auto zero) {
    with_window_index(
        index, [&](auto cell) { max_pool<decltype(zero), decltype(cell)>(x, options, y, index); });
  });
}

void max_pool2d_backward_kernel(Cpu, const Tensor& dy, const Tensor& index,
                                const Pool2dOptions& options, const Tensor& dx) {
  if (is_fast(dy, index)) {
    const simd::PoolImage image = image_of(dx.shape(), dy.shape(), options);
    const int64_t row = image.w * image.c, output = image.out_h * image.out_w * image.c;
    const int64_t rows = dx.numel() / std::max<int64_t>(row, 1);
    for_f32_rows(rows, row, 1, rows_at_once(kArithmeticGrain, row * options.kernel[1]), {}, {&dx},
                 [&](const F32Rows& one) {
                   const int64_t n = one.first / image.h, h = one.first % image.h;
                   const uint8_t* cells = index.data<uint8_t>() + n * output;
                   if (dy.dtype() == DType::bf16)
                     simd::max_pool_backward_row(image, dy.data<BFloat16>() + n * output, cells, h,
                                                 one.out[0]);
                   else
                     simd::max_pool_backward_row(image, dy.data<float>() + n * output, cells, h,
                                                 one.out[0]);
                 });
    return;
  }
  if (dy.dtype() == DType::bf16)
    return in_f32_slices({dy, index}, {dx}, [&](const auto& in, const auto& out) {
      max_pool2d_backward_kernel(Cpu{}, in[0], in[1], options, out[0]);
    });
  with_real(dy.dtype(), [&](auto zero) {
    with_window_index(index, [&](auto cell) {
      max_pool_backward<decltype(zero), decltype(cell)>(dy, index, options, dx);
    });
  });
}

void mean_windows_kernel(Cpu, const Tensor& x, const Windows& windows, const Tensor& y) {
  if (x.dtype() == DType::bf16)
    return in_f32_slices({x}, {y}, [&](const auto& in, const auto& out) {
      mean_windows_kernel(Cpu{}, in[0], windows, out[0]);
    });
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Shape& xs = x.shape();
    const int64_t c = xs[3], pixels = windows.out_h * windows.out_w;
    const int64_t cells = xs[1] * xs[2] / std::max<int64_t>(pixels, 1);
    parallel_for(0, xs[0] * pixels, rows_at_once(kArithmeticGrain, c * std::max<int64_t>(cells, 1)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t n = i / pixels;
                     const MeanWindow m = mean_window(
                         windows, xs[1], xs[2], i % pixels / windows.out_w, i % windows.out_w);
                     T* __restrict sum = y.mut<T>() + i * c;
                     std::fill_n(sum, c, T{0});
                     for (int64_t h = m.h.begin; h < m.h.end; ++h)
                       for (int64_t w = m.w.begin; w < m.w.end; ++w) {
                         const T* __restrict p = x.data<T>() + ((n * xs[1] + h) * xs[2] + w) * c;
                         for (int64_t k = 0; k < c; ++k) sum[k] += p[k];
                       }
                     const T factor = static_cast<T>(1 / m.area);
                     for (int64_t k = 0; k < c; ++k) sum[k] *= factor;
                   }
                 });
  });
}

void mean_windows_backward_kernel(Cpu, const Tensor& dy, const Windows& windows, const Tensor& dx) {
  if (dy.dtype() == DType::bf16)
    return in_f32_slices({dy}, {dx}, [&](const auto& in, const auto& out) {
      mean_windows_backward_kernel(Cpu{}, in[0], windows, out[0]);
    });
  with_real(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const Shape& xs = dx.shape();
    const int64_t c = xs[3];
    parallel_for(0, xs[0], rows_at_once(kArithmeticGrain, xs[1] * xs[2] * c),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t n = begin; n < end; ++n) {
                     T* image = dx.mut<T>() + n * xs[1] * xs[2] * c;
                     std::fill_n(image, xs[1] * xs[2] * c, T{0});
                     for (int64_t oh = 0; oh < windows.out_h; ++oh)
                       for (int64_t ow = 0; ow < windows.out_w; ++ow) {
                         const MeanWindow m = mean_window(windows, xs[1], xs[2], oh, ow);
                         const T factor = static_cast<T>(1 / m.area);
                         const T* __restrict g =
                             dy.data<T>() + ((n * windows.out_h + oh) * windows.out_w + ow) * c;
                         for (int64_t h = m.h.begin; h < m.h.end; ++h)
                           for (int64_t w = m.w.begin; w < m.w.end; ++w) {
                             T* __restrict p = image + (h * xs[2] + w) * c;
                             for (int64_t k = 0; k < c; ++k) p[k] += factor * g[k];
                           }
                       }
                   }
                 });
  });
}

Shape pool2d_shape(const char* op, const Shape& x, const Pool2dOptions& o) {
  FRUGAL_CHECK(x.dim() == 4, "[{}] expected x [N, H, W, C], got {}", op, x);
  Shape y = x;
  for (int axis = 1; axis <= 2; ++axis) {
    const auto i = static_cast<size_t>(axis - 1);
    FRUGAL_CHECK(
        in_range(o.kernel[i], 1) && in_range(o.stride[i], 1) && in_range(o.padding[i], 0) &&
            2 * o.padding[i] <= o.kernel[i],
        "[{}] expected a kernel and stride of at least 1 and a padding of at most half the "
        "kernel, got {}, {} and {}",
        op, o.kernel[i], o.stride[i], o.padding[i]);
    const int64_t room = x[axis] + 2 * o.padding[i] - o.kernel[i];
    FRUGAL_CHECK(room >= 0 && x[axis] >= 1,
                 "[{}] expected a window within the padded image, got {}x{} over {}", op,
                 o.kernel[0], o.kernel[1], x);
    y[axis] = room / o.stride[i] + 1;
  }
  return y;
}

MaxPooled max_pool2d(const Tensor& x, const Pool2dOptions& options) {
  check_real("max_pool2d", "x", x);
  const Shape shape = pool2d_shape("max_pool2d", x.shape(), options);
  const Tensor in = contiguous(x);
  const int64_t cells = options.kernel[0] * options.kernel[1];
  MaxPooled out{Tensor::empty(shape, x.dtype(), x.device()),
                Tensor::empty(shape, window_index_dtype(cells), x.device()), cells};
  dispatch(x.device(),
           [&](auto backend) { max_pool2d_kernel(backend, in, options, out.y, out.index); });
  return out;
}

Tensor max_pool2d_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape,
                           const Pool2dOptions& options) {
  constexpr const char* kOp = "max_pool2d backward";
  check_real(kOp, "dy", dy);
  check_shape(kOp, "dy", dy, pool2d_shape(kOp, x_shape, options));
  check_shape(kOp, "index", index, dy.shape());
  const Tensor gradient = contiguous(dy), cells = contiguous(index);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(), [&](auto backend) {
    max_pool2d_backward_kernel(backend, gradient, cells, options, dx);
  });
  return dx;
}

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  check_real("avg_pool2d", "x", x);
  return mean_windows(x, windows_of(pool2d_shape("avg_pool2d", x.shape(), options), options));
}

Tensor avg_pool2d_backward(const Tensor& dy, const Shape& x_shape, const Pool2dOptions& options) {
  constexpr const char* kOp = "avg_pool2d backward";
  check_real(kOp, "dy", dy);
  check_shape(kOp, "dy", dy, pool2d_shape(kOp, x_shape, options));
  return mean_windows_backward(dy, x_shape, windows_of(dy.shape(), options));
}

Tensor adaptive_avg_pool2d(const Tensor& x, int64_t out_h, int64_t out_w) {
  check_dim("adaptive_avg_pool2d", "x", x, 4);
  check_real("adaptive_avg_pool2d", "x", x);
  FRUGAL_CHECK(out_h >= 1 && out_w >= 1 && x.size(1) >= 1 && x.size(2) >= 1,
               "[adaptive_avg_pool2d] expected an image and an output of at least 1x1, got {} and "
               "{}x{}",
               x.shape(), out_h, out_w);
  return mean_windows(x, {out_h, out_w, {}, true});
}

Tensor adaptive_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape) {
  constexpr const char* kOp = "adaptive_avg_pool2d backward";
  check_dim(kOp, "dy", dy, 4);
  check_real(kOp, "dy", dy);
  check_shape(kOp, "dy", dy, {x_shape[0], dy.size(1), dy.size(2), x_shape.back()});
  return mean_windows_backward(dy, x_shape, {dy.size(1), dy.size(2), {}, true});
}

Tensor global_avg_pool2d(const Tensor& x) {
  check_dim("global_avg_pool2d", "x", x, 4);
  if (x.size(0) == 0) return Tensor::empty({0, x.size(3)}, x.dtype(), x.device());
  return mean(x, {1, 2});
}

Tensor global_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape) {
  check_shape("global_avg_pool2d backward", "dy", dy, {x_shape[0], x_shape[3]});
  const Tensor pixel = contiguous(dy).view({x_shape[0], 1, 1, x_shape[3]});
  return mean_windows_backward(pixel, x_shape, {1, 1, {}, true});
}

}  // namespace frugal::ops
