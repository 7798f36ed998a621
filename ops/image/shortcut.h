// The shortcut without parameters of small residual networks. Ref: He et al. 2016, option A.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// x [N, H, W, C] f32 or f64 -> [N, ceil(H/stride), ceil(W/stride), before + C + after]: every
// stride-th pixel, zeros in the new channels.  Errors: not four axes, stride < 1, negative padding.
Tensor subsample_pad(const Tensor& x, int64_t stride, int64_t before, int64_t after);
void subsample_pad_kernel(Cpu, const Tensor& y, const Tensor& x, int64_t stride, int64_t before);
void subsample_pad_kernel(Cuda, const Tensor& y, const Tensor& x, int64_t stride, int64_t before);

// dy -> dx of shape x_shape: dy's inner channels at every stride-th pixel, zeros elsewhere.
Tensor subsample_pad_backward(const Tensor& dy, const Shape& x_shape, int64_t stride,
                              int64_t before);
void subsample_pad_backward_kernel(Cpu, const Tensor& dx, const Tensor& dy, int64_t stride,
                                   int64_t before);
void subsample_pad_backward_kernel(Cuda, const Tensor& dx, const Tensor& dy, int64_t stride,
                                   int64_t before);

}  // namespace frugal::ops
