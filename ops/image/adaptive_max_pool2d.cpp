#include "ops/image/adaptive_max_pool2d.h"

#include <algorithm>
#include <limits>

#include "core/dtype_switch.h"
#include "core/finite.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/image/pool2d_windows.h"

namespace frugal::ops {
namespace {

constexpr const char* kAdaptiveMaxPool2d = "adaptive_max_pool2d";

// The most positions that a window along an axis holds.
int64_t longest(int64_t extent, int64_t outputs) {
  int64_t most = 0;
  for (int64_t o = 0; o < outputs; ++o) {
    const Span span = adaptive_window(o, extent, outputs);
    most = std::max(most, span.end - span.begin);
  }
  return most;
}

}  // namespace

void adaptive_max_pool2d_kernel(Cpu, const Tensor& x, const Tensor& y, const Tensor& index) {
  if (x.dtype() == DType::bf16)
    return in_f32_slices({x}, {y, index}, [](const auto& in, const auto& out) {
      adaptive_max_pool2d_kernel(Cpu{}, in[0], out[0], out[1]);
    });
  const Shape &xs = x.shape(), &ys = y.shape();
  const int64_t c = xs[3];
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_window_index(index, [&](auto number) {
      using Index = decltype(number);
      parallel_for(0, ys[0] * ys[1], 1, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const Span h = adaptive_window(row % ys[1], xs[1], ys[1]);
          for (int64_t ow = 0; ow < ys[2]; ++ow) {
            const Span w = adaptive_window(ow, xs[2], ys[2]);
            T* best = y.mut<T>() + (row * ys[2] + ow) * c;
            Index* cell = index.mut<Index>() + (row * ys[2] + ow) * c;
            std::fill_n(best, c, -std::numeric_limits<T>::infinity());
            std::fill_n(cell, c, Index{0});
            for (int64_t i = h.begin; i < h.end; ++i)
              for (int64_t j = w.begin; j < w.end; ++j) {
                const T* from = x.data<T>() + ((row / ys[1] * xs[1] + i) * xs[2] + j) * c;
                const auto here =
                    static_cast<Index>((i - h.begin) * (w.end - w.begin) + j - w.begin);
                for (int64_t k = 0; k < c; ++k) {
                  // NaN wins, and stays: nothing is above it.
                  if (from[k] <= best[k] || is_nan(best[k])) continue;
                  best[k] = from[k];
                  cell[k] = here;
                }
              }
          }
        }
      });
    });
  });
}

void adaptive_max_pool2d_backward_kernel(Cpu, const Tensor& dy, const Tensor& index,
                                         const Tensor& dx) {
  if (dx.dtype() == DType::bf16)
    return in_f32_slices({dy, index}, {dx}, [](const auto& in, const auto& out) {
      adaptive_max_pool2d_backward_kernel(Cpu{}, in[0], in[1], out[0]);
    });
  const Shape &xs = dx.shape(), &ys = dy.shape();
  const int64_t c = xs[3], image = xs[1] * xs[2] * c;
  with_real(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_window_index(index, [&](auto number) {
      using Index = decltype(number);
      // One task for each image, because windows of one image may overlap.
      parallel_for(0, xs[0], 1, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin; n < end; ++n) {
          T* to = dx.mut<T>() + n * image;
          std::fill_n(to, image, T{0});
          for (int64_t oh = 0; oh < ys[1]; ++oh)
            for (int64_t ow = 0; ow < ys[2]; ++ow) {
              const Span h = adaptive_window(oh, xs[1], ys[1]);
              const Span w = adaptive_window(ow, xs[2], ys[2]);
              const int64_t from = ((n * ys[1] + oh) * ys[2] + ow) * c, width = w.end - w.begin;
              for (int64_t k = 0; k < c; ++k) {
                const auto cell = static_cast<int64_t>(index.data<Index>()[from + k]);
                const int64_t at = (h.begin + cell / width) * xs[2] + w.begin + cell % width;
                to[at * c + k] += dy.data<T>()[from + k];
              }
            }
        }
      });
    });
  });
}

MaxPooled adaptive_max_pool2d(const Tensor& x, int64_t out_h, int64_t out_w) {
  check_dim(kAdaptiveMaxPool2d, "x", x, 4);
  check_real(kAdaptiveMaxPool2d, "x", x);
  FRUGAL_CHECK(out_h >= 1 && out_w >= 1 && x.size(1) >= 1 && x.size(2) >= 1,
               "[{}] expected an image and an output of at least 1x1, got {} and {}x{}",
               kAdaptiveMaxPool2d, describe(x), out_h, out_w);
  const Shape shape{x.size(0), out_h, out_w, x.size(3)};
  const int64_t cells = longest(x.size(1), out_h) * longest(x.size(2), out_w);
  const Tensor in = contiguous(x);
  MaxPooled out{Tensor::empty(shape, x.dtype(), x.device()),
                Tensor::empty(shape, window_index_dtype(cells), x.device()), cells};
  dispatch(x.device(),
           [&](auto backend) { adaptive_max_pool2d_kernel(backend, in, out.y, out.index); });
  return out;
}

Tensor adaptive_max_pool2d_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape) {
  check_real(kAdaptiveMaxPool2d, "dy", dy);
  check_shape(kAdaptiveMaxPool2d, "dy", dy, index.shape());
  const Tensor gradient = contiguous(dy), cells = contiguous(index);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(), [&](auto backend) {
    adaptive_max_pool2d_backward_kernel(backend, gradient, cells, dx);
  });
  return dx;
}

}  // namespace frugal::ops
