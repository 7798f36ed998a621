// Ops that only move elements, for any dtype. (transpose and slice are views, see core/tensor.h.)
#pragma once
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

using Padding = std::vector<std::pair<int64_t, int64_t>>;  // per axis: before, after

// x in another shape; a view when x is contiguous. One extent may be -1.
Tensor reshape(const Tensor& x, const Shape& shape);

// The tensors one after the other along `axis`. Errors: no tensors; dtypes, devices or the other
// extents differ.
Tensor concat(const std::vector<Tensor>& xs, int axis);

// x with elements of `value` around it: for each axis, padding.first of them before x and
// padding.second after it. Errors: not one pair for each axis; a negative number.
Tensor pad(const Tensor& x, const Padding& padding, double value = 0);
// The gradient of pad(): a view of dy without the padding.
Tensor pad_backward(const Tensor& dy, const Padding& padding);

// The gradient of x.slice(axis, begin, ...), of `shape`: dy at the place of the slice, zeros
// elsewhere.
Tensor slice_backward(const Tensor& dy, const Shape& shape, int axis, int64_t begin);

}  // namespace frugal::ops
