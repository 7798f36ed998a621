// Reductions, and the broadcasts that are their gradients. f32 and f64 unless said otherwise. For
// f32 inputs at most 256 terms are added in f32, then sums continue in f64. The order depends only
// on shapes, so results have the same bits for every number of threads.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

// Sum and mean over `axes`; no axes means all. Reduced axes become 1 with keep_dim, else they are
// dropped. The sum of no elements is 0. Errors: an axis given twice; the mean of no elements.
Tensor sum(const Tensor& x, const std::vector<int>& axes = {}, bool keep_dim = false);
Tensor mean(const Tensor& x, const std::vector<int>& axes = {}, bool keep_dim = false);
// x [O, R, I] -> out [O, I], times `factor`; both contiguous.
void sum_kernel(Cpu, const Tensor& x, const Tensor& out, double factor);
void sum_kernel(Cuda, const Tensor& x, const Tensor& out, double factor);

// The largest value along `axis` and the first position that has it. NaN counts as larger than
// everything. The index is u8 if the extent allows it, else i32, else i64.
// Errors: the maximum of no elements.
struct MaxResult {
  Tensor values, indices;
};
MaxResult max(const Tensor& x, int axis, bool keep_dim = false);
Tensor argmax(const Tensor& x, int axis, bool keep_dim = false);  // i64
// x [O, R, I] -> values and indices [O, I]; all contiguous.
void max_kernel(Cpu, const Tensor& x, const Tensor& values, const Tensor& indices);
void max_kernel(Cuda, const Tensor& x, const Tensor& values, const Tensor& indices);

// dy and indices as max gave them (with or without keep_dim) -> the gradient of x, of `shape`: dy
// at the position of the maximum, else 0.
Tensor max_backward(const Tensor& dy, const Tensor& indices, const Shape& shape, int axis);
// dy, indices [O, I] -> dx [O, R, I]; all contiguous.
void max_backward_kernel(Cpu, const Tensor& dy, const Tensor& indices, const Tensor& dx);
void max_backward_kernel(Cuda, const Tensor& dy, const Tensor& indices, const Tensor& dx);

// Sums x over the axes along which `shape` was broadcast to the shape of x: the gradient of a
// broadcast. Returns x itself if the shapes are equal. Errors: `shape` does not broadcast to the
// shape of x.
Tensor sum_to(const Tensor& x, const Shape& shape);

// A view of x repeated to `shape` (strides 0), any dtype. Errors: x does not broadcast to `shape`.
Tensor expand(const Tensor& x, const Shape& shape);

// x repeated to `shape` as a contiguous tensor; x itself if it is contiguous and has this shape.
Tensor broadcast_to(const Tensor& x, const Shape& shape);

// The shape after reducing `axes` (no axes: all). Errors: an axis outside x or given twice.
Shape reduced_shape(const char* op, const Shape& shape, const std::vector<int>& axes,
                    bool keep_dim);

// The flat index of the first NaN or infinity, or -1. Any dtype. Integers and tensors on `meta`
// count as finite.
int64_t first_nonfinite(const Tensor& x);
inline bool isfinite_all(const Tensor& x) { return first_nonfinite(x) < 0; }
void first_nonfinite_kernel(Cpu, const Tensor& x, int64_t& index);
void first_nonfinite_kernel(Cuda, const Tensor& x, int64_t& index);

}  // namespace frugal::ops
