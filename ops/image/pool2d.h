// 2-D pooling, NHWC, f32 and f64. OH = floor((H + 2 padding - kernel) / stride) + 1.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// x [N, H, W, C] -> y [N, OH, OW, C].  Errors: not four axes; a padding above half the kernel, as
// in PyTorch; an empty output.
Shape pool2d_shape(const char* op, const Shape& x, const Pool2dOptions& options);

// The largest value of each window, and the index of its cell. Cells are numbered row by row in the
// window, as u8, or as i32 for windows of more than 256 cells. Padding is never the maximum; NaN
// always is.
struct MaxPooled {
  Tensor y, index;
  int64_t cells = 0;  // the most that a window has
};
MaxPooled max_pool2d(const Tensor& x, const Pool2dOptions& options);
void max_pool2d_kernel(Cpu, const Tensor& x, const Pool2dOptions& options, const Tensor& y,
                       const Tensor& index);
void max_pool2d_kernel(Cuda, const Tensor& x, const Pool2dOptions& options, const Tensor& y,
                       const Tensor& index);
Tensor max_pool2d_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape,
                           const Pool2dOptions& options);
void max_pool2d_backward_kernel(Cpu, const Tensor& dy, const Tensor& index,
                                const Pool2dOptions& options, const Tensor& dx);
void max_pool2d_backward_kernel(Cuda, const Tensor& dy, const Tensor& index,
                                const Pool2dOptions& options, const Tensor& dx);

// Means over windows that are given by their bounds: the window of output (oh, ow) is rows [top,
// bottom) and columns [left, right) of the image, and its sum is divided by `area`. Every kind of
// average pooling uses this.
struct Windows {
  int64_t out_h = 0, out_w = 0;
  Pool2dOptions options;  // options of avg_pool2d
  bool adaptive = false;  // windows [floor(i H / OH), ceil((i + 1) H / OH)) instead
};
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d_backward(const Tensor& dy, const Shape& x_shape, const Pool2dOptions& options);
// Errors: an output extent below 1.
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t out_h, int64_t out_w);
Tensor adaptive_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape);
// The mean over the whole image, [N, C].
Tensor global_avg_pool2d(const Tensor& x);
Tensor global_avg_pool2d_backward(const Tensor& dy, const Shape& x_shape);
void mean_windows_kernel(Cpu, const Tensor& x, const Windows& windows, const Tensor& y);
void mean_windows_kernel(Cuda, const Tensor& x, const Windows& windows, const Tensor& y);
void mean_windows_backward_kernel(Cpu, const Tensor& dy, const Windows& windows, const Tensor& dx);
void mean_windows_backward_kernel(Cuda, const Tensor& dy, const Windows& windows, const Tensor& dx);

}  // namespace frugal::ops
