// Copies: contiguous, clone, strided copy, cast. Any dtype unless said otherwise.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// `x` itself when contiguous, else a contiguous copy.
Tensor contiguous(const Tensor& x);

// A contiguous copy in fresh storage.
Tensor clone(const Tensor& x);

// Writes x into `out`, both strided as they are; equal shapes. Converts between dtypes: floating to
// integer truncates, anything to bool is x != 0. Does not bump out's version. Errors: shapes
// differ.
void copy_into(const Tensor& out, const Tensor& x);
void copy_kernel(Cpu, const Tensor& out, const Tensor& x);
void copy_kernel(Cuda, const Tensor& out, const Tensor& x);

// x in another dtype; x itself when it has it already.
Tensor cast(const Tensor& x, DType dtype);

// Every element of `out` becomes `value`. Does not bump out's version.
void fill(const Tensor& out, double value);
void fill_kernel(Cpu, const Tensor& out, double value);
void fill_kernel(Cuda, const Tensor& out, double value);

}  // namespace frugal::ops
