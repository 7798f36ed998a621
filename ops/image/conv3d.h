// 3-D convolution and its transpose. Volumes [N, D, H, W, C], weights [K, T, R, S, C/groups];
// dtypes and precision as conv2d. Each layer of the window is a conv2d over whole ranges of layers,
// so every backend of conv2d has these, too; the sum over the window's layers is in the dtype of x.
// Ref: Dumoulin & Visin 2016.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// x [N, D, H, W, C], weight [K, T, R, S, C/groups], bias [K] or undefined -> [N, OD, OH, OW, K],
// each extent as in conv2d.  Errors: as conv2d's.
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv3dOptions& options = {});
Tensor conv3d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv3dOptions& options);
Tensor conv3d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                              const Conv3dOptions& options);

// The adjoint of a convolution: x [N, D, H, W, C], weight [C, T, R, S, K/groups], bias [K] or
// undefined -> [N, OD, OH, OW, K] with OD = (D - 1) stride - 2 padding + dilation (T - 1) +
// output_padding + 1.  Errors: axes, channels or groups that do not fit; an empty output; an output
// padding that is not below the stride.
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose3dOptions& options = {});
Tensor conv_transpose3d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                                       const ConvTranspose3dOptions& options);
Tensor conv_transpose3d_backward_weight(const Tensor& dy, const Tensor& x,
                                        const Shape& weight_shape,
                                        const ConvTranspose3dOptions& options);

}  // namespace frugal::ops
