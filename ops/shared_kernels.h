// Small helpers that the kernels of many ops share. Internal.
#pragma once
#include <algorithm>

#include "core/tensor.h"
#include "ops/dense/copy.h"

namespace frugal::ops {

// The least number of elements that a thread takes in parallel_for(), by what an element costs.
inline constexpr int64_t kCopyGrain = 1 << 15;         // a load, few operations and a store
inline constexpr int64_t kArithmeticGrain = 1 << 14;   // more operations, or several tensors
inline constexpr int64_t kExponentialGrain = 1 << 12;  // an exponential

// Rows whose losses are added in one sum, by whichever thread. Other numbers change the bits.
inline constexpr int64_t kLossRows = 64;

// The number of rows of `width` elements that a thread takes at least, for a grain in elements.
inline int64_t rows_at_once(int64_t grain, int64_t width) {
  return std::max<int64_t>(1, grain / std::max<int64_t>(width, 1));
}

// x [..., C] as rows: C, and the number of rows.
inline int64_t width_of(const Tensor& x) { return x.shape().back(); }
inline int64_t rows_of(const Tensor& x) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.dim(); ++axis) rows *= x.shape()[axis];
  return rows;
}

// x [..., C] as [rows, C].
inline Tensor as_rows(const Tensor& x) { return contiguous(x).view({rows_of(x), x.size(-1)}); }

// The first element of a tensor that may be undefined.
template <class T>
const T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

inline Tensor contiguous_or_none(const Tensor& x) { return x.defined() ? contiguous(x) : x; }

// Uninitialised memory of a kernel.
inline Tensor workspace(const Shape& shape, DType dtype, Device device = kCpu) {
  const CategoryScope scope(Category::workspace);
  return Tensor::empty(shape, dtype, device);
}

}  // namespace frugal::ops
