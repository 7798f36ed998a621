// Ops that only move elements: any dtype. reshape, transpose and slice are views of Tensor.
#pragma once
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

using Padding = std::vector<std::pair<int64_t, int64_t>>;  // per axis: before, after

// x in another shape; a view when x is contiguous. One extent may be -1.
Tensor reshape(const Tensor& x, const Shape& shape);

// The tensors one after the other along `axis`. Errors: none given; dtypes, devices or the other
// extents differ.
Tensor concat(const std::vector<Tensor>& xs, int axis);

// x with padding.first elements of `value` before and padding.second after it on every axis.
// Errors: not one pair per axis; a negative number.
Tensor pad(const Tensor& x, const Padding& padding, double value = 0);
// Its gradient: a view of dy without the padding.
Tensor pad_backward(const Tensor& dy, const Padding& padding);

// The gradient of x.slice(axis, begin, ...): dy in the midst of zeros, of `shape`.
Tensor slice_backward(const Tensor& dy, const Shape& shape, int axis, int64_t begin);

}  // namespace frugal::ops
