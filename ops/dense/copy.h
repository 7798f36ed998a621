// Copies: contiguous, clone, strided copy, cast. Any dtype unless said otherwise.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// `x` itself when contiguous, else a contiguous copy.
Tensor contiguous(const Tensor& x);

// A contiguous copy in fresh storage.
Tensor clone(const Tensor& x);

// Writes x into `out`. Both may have any strides; their shapes are equal. Converts between dtypes:
// floating to integer truncates, and gives the nearest value that the integer has (NaN: 0);
// anything to bool is x != 0. Does not raise the version of `out`.
// Errors: shapes differ.
void copy_into(const Tensor& out, const Tensor& x);
void copy_kernel(Cpu, const Tensor& out, const Tensor& x);
void copy_kernel(Cuda, const Tensor& out, const Tensor& x);

// x in another dtype, or x itself if it has that dtype.
Tensor cast(const Tensor& x, DType dtype);

// Writes `value` to every element of `out`. Does not raise the version of `out`.
void fill(const Tensor& out, double value);
void fill_kernel(Cpu, const Tensor& out, double value);
void fill_kernel(Cuda, const Tensor& out, double value);

}  // namespace frugal::ops
