// Images of another size by interpolation, NHWC, f32 and f64.
// Ref: PyTorch's torch.nn.functional.interpolate with `size`; ONNX's Resize.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// x [N, H, W, C] -> y [N, OH, OW, C].  Errors: not four axes; an empty image or output.
Tensor interpolate(const Tensor& x, int64_t out_h, int64_t out_w,
                   const InterpolateOptions& options);
// dy [N, OH, OW, C] -> dx of x_shape: the adjoint of interpolate().
Tensor interpolate_backward(const Tensor& dy, const Shape& x_shape,
                            const InterpolateOptions& options);
void interpolate_kernel(Cpu, const Tensor& x, const InterpolateOptions& options, const Tensor& y);
void interpolate_kernel(Cuda, const Tensor& x, const InterpolateOptions& options, const Tensor& y);
void interpolate_backward_kernel(Cpu, const Tensor& dy, const InterpolateOptions& options,
                                 const Tensor& dx);
void interpolate_backward_kernel(Cuda, const Tensor& dy, const InterpolateOptions& options,
                                 const Tensor& dx);

}  // namespace frugal::ops
