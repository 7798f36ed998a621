#include "core/shape.h"

#include <algorithm>

#include "core/error.h"

namespace frugal {

Shape::Shape(std::span<const int64_t> extents) {
  for (int64_t extent : extents) push_back(extent);
}

void Shape::push_back(int64_t extent) {
  FRUGAL_CHECK(dim_ < kMaxDim, "[shape] expected at most {} axes, got more", kMaxDim);
  extents_[static_cast<size_t>(dim_++)] = extent;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t extent : *this) n *= extent;
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int axis = shape.dim() - 1; axis >= 0; --axis) {
    strides[axis] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  return strides;
}

int normalize_axis(const char* op, int axis, int dim) {
  FRUGAL_CHECK(axis >= -dim && axis < dim, "[{}] expected an axis in [{}, {}), got {}", op, -dim,
               dim, axis);
  return axis < 0 ? axis + dim : axis;
}

Shape broadcast_shape(const char* op, const Shape& a, const Shape& b) {
  const int dim = std::max(a.dim(), b.dim());
  Shape out;
  for (int axis = 0; axis < dim; ++axis) {
    const int ia = axis - (dim - a.dim()), ib = axis - (dim - b.dim());
    const int64_t ea = ia < 0 ? 1 : a[ia], eb = ib < 0 ? 1 : b[ib];
    FRUGAL_CHECK(ea == eb || ea == 1 || eb == 1,
                 "[{}] expected shapes that broadcast together, got {} and {}", op, a, b);
    out.push_back(ea == 1 ? eb : ea);
  }
  return out;
}

}  // namespace frugal
