// Maxima over windows that divide an image into a wanted number of parts, NHWC, f32 and f64.
// Ref: PyTorch's torch.nn.functional.adaptive_max_pool2d.
#pragma once
#include "ops/image/pool2d.h"

namespace frugal::ops {

// x [N, H, W, C] -> y [N, out_h, out_w, C] and, in y's shape, the cell of each maximum, numbered
// row by row within its window: u8, or i32 where a window has more than 256 cells. The window of
// output i along an axis of H positions is [floor(i H / out_h), ceil((i + 1) H / out_h)). The first
// of equal values is the maximum; NaN always is. Errors: not four axes; an empty image or output.
MaxPooled adaptive_max_pool2d(const Tensor& x, int64_t out_h, int64_t out_w);
void adaptive_max_pool2d_kernel(Cpu, const Tensor& x, const Tensor& y, const Tensor& index);
void adaptive_max_pool2d_kernel(Cuda, const Tensor& x, const Tensor& y, const Tensor& index);
Tensor adaptive_max_pool2d_backward(const Tensor& dy, const Tensor& index, const Shape& x_shape);
void adaptive_max_pool2d_backward_kernel(Cpu, const Tensor& dy, const Tensor& index,
                                         const Tensor& dx);
void adaptive_max_pool2d_backward_kernel(Cuda, const Tensor& dy, const Tensor& index,
                                         const Tensor& dx);

}  // namespace frugal::ops
