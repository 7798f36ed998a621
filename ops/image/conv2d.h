// 2-D convolution. Images NHWC, weights [K, R, S, C/groups]; f32 and bf16 with sums in f32
// (oneDNN; on CUDA cuDNN; see ops/precision.h), on the CPU also f64 (plain loops). Beside bf16,
// bias, weight and dweight are f32; the weight is rounded to bf16 for the product.
// oneDNN's kernels copy the weight, or its gradient, to a layout of their own. Weights above 10 MiB
// in f32 without groups are taken in parts of that size, so that these copies stay small.
// Ref: Dumoulin & Visin 2016.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// x [N, H, W, C], weight [K, R, S, C/groups], bias [K] or undefined -> y [N, OH, OW, K] with
// OH = floor((H + 2 padding - dilation (R - 1) - 1) / stride) + 1.
// Errors: axes, channels or groups that do not fit; a window larger than the padded image.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv2dOptions& options = {});

// dx of shape x_shape; dweight of shape weight_shape. The gradient of the bias is dy summed over
// all axes but the last. Bits are equal in every run. The bits of an f32 dweight depend on the
// number of threads, because oneDNN splits its sums over threads.
Tensor conv2d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                             const Conv2dOptions& options);
Tensor conv2d_backward_weight(const Tensor& dy, const Tensor& x, const Shape& weight_shape,
                              const Conv2dOptions& options);
// sum += dweight, with the bits of that sum. `sum` is contiguous and has the shape and dtype of
// dweight. Where oneDNN has a layout of its own for dweight, that is added on its way back, and no
// other tensor of its size is made.
void add_conv2d_backward_weight(const Tensor& sum, const Tensor& dy, const Tensor& x,
                                const Conv2dOptions& options);

// Writes dx into `dx`, which is contiguous and has the shape of the input and the dtype of dy.
// Errors: another shape or layout.
void conv2d_backward_input_into(const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                const Conv2dOptions& options);

// sum += dx. `sum` is contiguous and has the shape and dtype of dx. The result has the bits of that
// sum, unless the weight is large (above): then each part is added on its own. Where oneDNN's
// kernel can add, no tensor of dx's size is made. On `meta` that tensor is counted outside a
// KernelMemoryScope, because the kernels of the machine that runs the step are not known.
void add_conv2d_backward_input(const Tensor& sum, const Tensor& dy, const Tensor& weight,
                               const Conv2dOptions& options);

// The shape of y.  Errors: as in conv2d(); messages name `op`.
Shape conv2d_shape(const char* op, const Shape& x, const Shape& weight,
                   const Conv2dOptions& options);

void conv2d_kernel(Cpu, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Conv2dOptions& options);
void conv2d_backward_input_kernel(Cpu, const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                  const Conv2dOptions& options);
void conv2d_backward_weight_kernel(Cpu, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& options);
void conv2d_kernel(Cuda, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& bias,
                   const Conv2dOptions& options);
void conv2d_backward_input_kernel(Cuda, const Tensor& dx, const Tensor& dy, const Tensor& weight,
                                  const Conv2dOptions& options);
void conv2d_backward_weight_kernel(Cuda, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                                   const Conv2dOptions& options);

}  // namespace frugal::ops
