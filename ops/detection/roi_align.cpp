#include "ops/detection/roi_align.h"

#include <algorithm>
#include <vector>

#include "core/dtype_switch.h"
#include "core/integers.h"
#include "core/parallel.h"
#include "ops/dense/copy.h"
#include "ops/detection/box_checks.h"
#include "ops/detection/roi_windows.h"
#include "ops/f32_blocks.h"

namespace frugal::ops {
namespace {

constexpr int64_t kChannels = 64;  // channels of dx that a thread adds to at a time

template <class T>
struct Region {
  int64_t picture;
  boxes::RoiAxis<T> vertical, horizontal;
};

template <class T>
Region<T> region_of(const T* box, const RoiAlignGrid& grid, const Shape& map) {
  const auto scale = static_cast<T>(grid.scale);
  const RoiAlignOptions& o = grid.options;
  return {static_cast<int64_t>(box[0]),
          boxes::RoiAxis<T>::of(box[2], box[4], scale, map[1], grid.height, o.sampling_ratio,
                                o.aligned),
          boxes::RoiAxis<T>::of(box[1], box[3], scale, map[2], grid.width, o.sampling_ratio,
                                o.aligned)};
}

// Calls f(pixel, weight) for each pixel that a cell reads; pixels may come several times.
template <class T, class F>
void each_pixel(const Region<T>& region, int64_t row, int64_t column, F f) {
  const auto &v = region.vertical, &u = region.horizontal;
  const T share = boxes::sample_share<T>(v.samples, u.samples);
  const auto add = [&](int64_t h, int64_t w, T weight) {
    if (weight != 0) f(h * u.extent + w, weight * share);
  };
  for (int64_t i = 0; i < v.samples; ++i) {
    const auto down = v.tap(row, i);
    for (int64_t j = 0; j < u.samples; ++j) {
      const auto right = u.tap(column, j);
      add(down.low, right.low, down.low_weight * right.low_weight);
      add(down.low, right.high, down.low_weight * right.high_weight);
      add(down.high, right.low, down.high_weight * right.low_weight);
      add(down.high, right.high, down.high_weight * right.high_weight);
    }
  }
}

template <class T>
void check_pictures(const Tensor& regions, int64_t pictures) {
  const T* box = regions.data<T>();
  for (int64_t r = 0; r < regions.size(0); ++r)
    FRUGAL_CHECK(box[5 * r] >= 0 && box[5 * r] < static_cast<T>(pictures),
                 "[roi_align] expected pictures in [0, {}), got {} of box {}", pictures, box[5 * r],
                 r);
}

}  // namespace

void roi_align_kernel(Cpu, const Tensor& x, const Tensor& regions, const RoiAlignGrid& grid,
                      const Tensor& y) {
  if (x.dtype() == DType::bf16) {
    InF32 wide;
    roi_align_kernel(Cpu{}, wide.read(x), regions, grid, wide.write(y));
    return wide.finish();
  }
  const int64_t c = x.size(3), cells = grid.height * grid.width;
  const int64_t picture = x.size(1) * x.size(2) * c;
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    check_pictures<T>(regions, x.size(0));
    parallel_for(0, y.size(0), 1 + 16384 / (cells * c + 1), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const Region<T> region = region_of(regions.data<T>() + 5 * r, grid, x.shape());
        const T* map = x.data<T>() + region.picture * picture;
        for (int64_t cell = 0; cell < cells; ++cell) {
          T* __restrict out = y.mut<T>() + (r * cells + cell) * c;
          std::fill_n(out, c, T{0});
          each_pixel(region, cell / grid.width, cell % grid.width, [&](int64_t pixel, T weight) {
            const T* in = map + pixel * c;
            for (int64_t k = 0; k < c; ++k) out[k] += weight * in[k];
          });
        }
      }
    });
  });
}

// A thread has some channels of a picture and adds what all boxes of this picture gave them.
void roi_align_backward_kernel(Cpu, const Tensor& dy, const Tensor& regions,
                               const RoiAlignGrid& grid, const Tensor& dx) {
  if (dx.dtype() == DType::bf16) {
    InF32 wide;
    roi_align_backward_kernel(Cpu{}, wide.read(dy), regions, grid, wide.write(dx));
    return wide.finish();
  }
  const int64_t c = dx.size(3), cells = grid.height * grid.width, pixels = dx.size(1) * dx.size(2);
  const int64_t parts = ceil_div(c, kChannels);
  with_real(dx.dtype(), [&](auto zero) {
    using T = decltype(zero);
    check_pictures<T>(regions, dx.size(0));
    parallel_for(0, dx.size(0) * parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t n = task / parts, first = task % parts * kChannels;
        const int64_t width = std::min(kChannels, c - first);
        T* map = dx.mut<T>() + n * pixels * c + first;
        for (int64_t p = 0; p < pixels; ++p) std::fill_n(map + p * c, width, T{0});
        for (int64_t r = 0; r < dy.size(0); ++r) {
          const Region<T> region = region_of(regions.data<T>() + 5 * r, grid, dx.shape());
          if (region.picture != n) continue;
          for (int64_t cell = 0; cell < cells; ++cell) {
            const T* in = dy.data<T>() + (r * cells + cell) * c + first;
            each_pixel(region, cell / grid.width, cell % grid.width, [&](int64_t pixel, T weight) {
              T* __restrict out = map + pixel * c;
              for (int64_t k = 0; k < width; ++k) out[k] += weight * in[k];
            });
          }
        }
      }
    });
  });
}

Tensor roi_align(const Tensor& x, const Tensor& regions, const RoiAlignGrid& grid) {
  constexpr const char* kOp = "roi_align";
  check_dim(kOp, "x", x, 4);
  check_real(kOp, "x", x);
  check_dim(kOp, "boxes", regions, 2);
  check_shape(kOp, "boxes", regions, {regions.size(0), 5});
  check_beside(kOp, x, {&regions});
  FRUGAL_CHECK(x.size(1) >= 1 && x.size(2) >= 1 && grid.height >= 1 && grid.width >= 1,
               "[roi_align] expected a map and cells of at least 1x1, got {} and {}x{}", x.shape(),
               grid.height, grid.width);
  Tensor y =
      Tensor::empty({regions.size(0), grid.height, grid.width, x.size(3)}, x.dtype(), x.device());
  const Tensor in = contiguous(x), all = contiguous(regions);
  dispatch(x.device(), [&](auto backend) { roi_align_kernel(backend, in, all, grid, y); });
  return y;
}

Tensor roi_align_backward(const Tensor& dy, const Tensor& regions, const Shape& x_shape,
                          const RoiAlignGrid& grid) {
  constexpr const char* kOp = "roi_align backward";
  check_real(kOp, "dy", dy);
  check_shape(kOp, "dy", dy, {regions.size(0), grid.height, grid.width, x_shape[3]});
  const Tensor gradient = contiguous(dy), all = contiguous(regions);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { roi_align_backward_kernel(backend, gradient, all, grid, dx); });
  return dx;
}

}  // namespace frugal::ops
