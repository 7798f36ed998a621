#include "ops/detection/roi_align.h"

#include "core/cuda/cuda_kernel.h"
#include "ops/detection/roi_windows.h"

namespace frugal::ops {
namespace {

// Maps [N, h, w, C] and the cells of regions.
struct Sizes {
  int64_t n, h, w, c, regions, rows, columns;
  float scale;
  int samples;
  bool aligned;
  __device__ boxes::RoiAxis<float> vertical(const float* box) const {
    return boxes::RoiAxis<float>::of(box[2], box[4], scale, h, rows, samples, aligned);
  }
  __device__ boxes::RoiAxis<float> horizontal(const float* box) const {
    return boxes::RoiAxis<float>::of(box[1], box[3], scale, w, columns, samples, aligned);
  }
};

Sizes sizes_of(const Shape& x, int64_t regions, const RoiAlignGrid& grid) {
  return {x[0],
          x[1],
          x[2],
          x[3],
          regions,
          grid.height,
          grid.width,
          static_cast<float>(grid.scale),
          grid.options.sampling_ratio,
          grid.options.aligned};
}

// A thread has a channel of a cell.
template <class T>
struct Forward {
  Sizes s;
  const float* regions;
  const T* x;
  T* y;
  __device__ float at(const T* map, int64_t row, int64_t column) const {
    return cuda::load(map[(row * s.w + column) * s.c]);
  }
  __device__ void operator()(int64_t i) const {
    const int64_t cell = i / s.c, region = cell / (s.rows * s.columns);
    const float* box = regions + 5 * region;
    const auto picture = static_cast<int64_t>(box[0]);
    y[i] = T{};
    if (picture < 0 || picture >= s.n) return;
    const T* map = x + picture * s.h * s.w * s.c + i % s.c;
    const auto v = s.vertical(box), u = s.horizontal(box);
    const int64_t row = cell / s.columns % s.rows, column = cell % s.columns;
    float sum = 0;
    for (int64_t a = 0; a < v.samples; ++a) {
      const auto down = v.tap(row, a);
      for (int64_t b = 0; b < u.samples; ++b) {
        const auto right = u.tap(column, b);
        sum += down.low_weight * (right.low_weight * at(map, down.low, right.low) +
                                  right.high_weight * at(map, down.low, right.high)) +
               down.high_weight * (right.low_weight * at(map, down.high, right.low) +
                                   right.high_weight * at(map, down.high, right.high));
      }
    }
    y[i] = cuda::store<T>(sum * boxes::sample_share<float>(v.samples, u.samples));
  }
};

// The gradient of a pixel: the sum over the boxes of its picture, in their order.
template <class T>
struct Backward {
  Sizes s;
  const float* regions;
  const T* dy;
  T* dx;
  __device__ void operator()(int64_t i) const {
    const int64_t pixel = i / s.c, picture = pixel / (s.h * s.w);
    const int64_t row = pixel / s.w % s.h, column = pixel % s.w;
    float sum = 0;
    for (int64_t r = 0; r < s.regions; ++r) {
      const float* box = regions + 5 * r;
      if (static_cast<int64_t>(box[0]) != picture) continue;
      const auto v = s.vertical(box), u = s.horizontal(box);
      if (!v.reaches(row) || !u.reaches(column)) continue;
      const float share = boxes::sample_share<float>(v.samples, u.samples);
      for (int64_t a = 0; a < s.rows; ++a) {
        const float down = v.weight(a, row);
        if (down == 0) continue;
        for (int64_t b = 0; b < s.columns; ++b) {
          const float weight = down * u.weight(b, column);
          if (weight == 0) continue;
          const int64_t from = ((r * s.rows + a) * s.columns + b) * s.c + i % s.c;
          sum += weight * share * cuda::load(dy[from]);
        }
      }
    }
    dx[i] = cuda::store<T>(sum);
  }
};

}  // namespace

void roi_align_kernel(Cuda, const Tensor& x, const Tensor& regions, const RoiAlignGrid& grid,
                      const Tensor& y) {
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(y.numel(), Forward<T>{sizes_of(x.shape(), regions.size(0), grid),
                                         regions.data<float>(), x.data<T>(), y.mut<T>()});
  });
}

void roi_align_backward_kernel(Cuda, const Tensor& dy, const Tensor& regions,
                               const RoiAlignGrid& grid, const Tensor& dx) {
  cuda::with_activation(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    cuda::for_each(dx.numel(), Backward<T>{sizes_of(dx.shape(), regions.size(0), grid),
                                           regions.data<float>(), dy.data<T>(), dx.mut<T>()});
  });
}

}  // namespace frugal::ops
