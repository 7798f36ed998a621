// Transposed 2-D convolution. It is the adjoint of conv2d with respect to its input, so it runs on
// the kernels of conv2d. Images NHWC, weights [C, R, S, K/groups] for C channels in and K out;
// dtypes as in conv2d.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// x [N, H, W, C], bias [K] or undefined -> y [N, OH, OW, K] with
// OH = (H - 1) stride - 2 padding + dilation (R - 1) + output_padding + 1.
// Errors: axes, channels or groups that do not fit; output_padding not below stride or dilation; an
// empty output.
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options = {});
Tensor conv_transpose2d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                                       const ConvTranspose2dOptions& options);
Tensor conv_transpose2d_backward_weight(const Tensor& dy, const Tensor& x,
                                        const Shape& weight_shape,
                                        const ConvTranspose2dOptions& options);

}  // namespace frugal::ops
