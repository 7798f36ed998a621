// The few ops that write into their argument: for gradients, which have one owner. All bump the
// version.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// into += term; equal shapes, f32 or f64, `into` contiguous.  Errors: shapes or dtypes differ.
void accumulate(const Tensor& into, const Tensor& term);
void accumulate_kernel(Cpu, const Tensor& into, const Tensor& term);
void accumulate_kernel(Cuda, const Tensor& into, const Tensor& term);

// Adds row [C] to every row of into [..., C], contiguous; f32 to bf16.  Errors: C differs.
void accumulate_row(const Tensor& into, const Tensor& row);
void accumulate_row_kernel(Cpu, const Tensor& into, const Tensor& row);
void accumulate_row_kernel(Cuda, const Tensor& into, const Tensor& row);

// x *= factor in place, contiguous f32 or f64; bumps the version.
void scale_inplace(const Tensor& x, double factor);
void scale_inplace_kernel(Cpu, const Tensor& x, double factor);
void scale_inplace_kernel(Cuda, const Tensor& x, double factor);
// The same by a factor [] on x's device, like x; beside bf16 f32.
void scale_inplace(const Tensor& x, const Tensor& factor);
void scale_inplace_kernel(Cpu, const Tensor& x, const Tensor& factor);
void scale_inplace_kernel(Cuda, const Tensor& x, const Tensor& factor);

// x = min(max(x, -bound), bound) in place; NaN stays; bumps the version.
void clip_inplace(const Tensor& x, double bound);
void clip_inplace_kernel(Cpu, const Tensor& x, double bound);
void clip_inplace_kernel(Cuda, const Tensor& x, double bound);

}  // namespace frugal::ops
