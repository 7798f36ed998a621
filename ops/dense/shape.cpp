#include "ops/dense/shape.h"

#include "ops/checks.h"
#include "ops/dense/copy.h"

namespace frugal::ops {
namespace {

void check_padding(const char* op, const Tensor& x, const Padding& padding) {
  check_defined(op, "x", x);
  FRUGAL_CHECK(static_cast<int>(padding.size()) == x.dim(),
               "[{}] expected a pair for each of the {} axes of {}, got {} pairs", op, x.dim(),
               describe(x), padding.size());
  for (const auto& [before, after] : padding)
    FRUGAL_CHECK(before >= 0 && after >= 0, "[{}] expected padding of at least 0, got ({}, {})", op,
                 before, after);
}

// The part of `padded` inside the padding.
Tensor inside(const Tensor& padded, const Padding& padding) {
  Tensor view = padded;
  for (int axis = 0; axis < view.dim(); ++axis) {
    const auto& [before, after] = padding[static_cast<size_t>(axis)];
    view = view.slice(axis, before, view.size(axis) - after);
  }
  return view;
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  check_defined("reshape", "x", x);
  return contiguous(x).view(shape);
}

Tensor concat(const std::vector<Tensor>& xs, int axis) {
  FRUGAL_CHECK(!xs.empty(), "[concat] expected at least one tensor, got none");
  check_defined("concat", "the first tensor", xs[0]);
  axis = normalize_axis("concat", axis, xs[0].dim());
  Shape shape = xs[0].shape();
  shape[axis] = 0;
  for (const Tensor& x : xs) {
    check_defined("concat", "every input", x);
    check_same("concat", xs[0], {&x});
    const bool fits = x.dim() == shape.dim();
    if (fits) shape[axis] += x.shape()[axis];
    Shape rest = x.shape();
    if (fits) rest[axis] = shape[axis];
    FRUGAL_CHECK(rest == shape, "[concat] expected shapes equal but for axis {}, got {} and {}",
                 axis, xs[0].shape(), x.shape());
  }
  Tensor out = Tensor::empty(shape, xs[0].dtype(), xs[0].device());
  int64_t begin = 0;
  for (const Tensor& x : xs) {
    const int64_t end = begin + x.shape()[axis];
    copy_into(out.slice(axis, begin, end), x);
    begin = end;
  }
  return out;
}

Tensor pad(const Tensor& x, const Padding& padding, double value) {
  check_padding("pad", x, padding);
  Shape shape = x.shape();
  for (int axis = 0; axis < shape.dim(); ++axis) {
    const auto& [before, after] = padding[static_cast<size_t>(axis)];
    shape[axis] += before + after;
  }
  Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  fill(out, value);
  copy_into(inside(out, padding), x);
  return out;
}

Tensor pad_backward(const Tensor& dy, const Padding& padding) {
  check_padding("pad_backward", dy, padding);
  return inside(dy, padding);
}

Tensor slice_backward(const Tensor& dy, const Shape& shape, int axis, int64_t begin) {
  check_defined("slice_backward", "dy", dy);
  Tensor dx = Tensor::empty(shape, dy.dtype(), dy.device());
  fill(dx, 0);
  copy_into(dx.slice(axis, begin, begin + dy.size(axis)), dy);
  return dx;
}

}  // namespace frugal::ops
