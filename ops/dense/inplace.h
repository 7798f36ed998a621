// The few ops that write into their argument. They serve gradients, which have one owner. All of
// them raise the version.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// into += term; equal shapes, f32 or f64, `into` contiguous.  Errors: shapes or dtypes differ.
void accumulate(const Tensor& into, const Tensor& term);
void accumulate_kernel(Cpu, const Tensor& into, const Tensor& term);
void accumulate_kernel(Cuda, const Tensor& into, const Tensor& term);

// Adds row [C] to every row of into [..., C], which is contiguous. An f32 row may be added to bf16.
// Errors: C differs.
void accumulate_row(const Tensor& into, const Tensor& row);
void accumulate_row_kernel(Cpu, const Tensor& into, const Tensor& row);
void accumulate_row_kernel(Cuda, const Tensor& into, const Tensor& row);

// x *= factor in place; x is contiguous, f32 or f64.
void scale_inplace(const Tensor& x, double factor);
void scale_inplace_kernel(Cpu, const Tensor& x, double factor);
void scale_inplace_kernel(Cuda, const Tensor& x, double factor);
// x *= factor in place, with a factor [] on the device of x and of its dtype, or f32 where x is
// bf16.
void scale_inplace(const Tensor& x, const Tensor& factor);
void scale_inplace_kernel(Cpu, const Tensor& x, const Tensor& factor);
void scale_inplace_kernel(Cuda, const Tensor& x, const Tensor& factor);

// x = min(max(x, -bound), bound) in place; NaN stays NaN.
void clip_inplace(const Tensor& x, double bound);
void clip_inplace_kernel(Cpu, const Tensor& x, double bound);
void clip_inplace_kernel(Cuda, const Tensor& x, double bound);

}  // namespace frugal::ops
