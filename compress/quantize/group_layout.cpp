#include "compress/quantize/group_layout.h"

#include "core/integers.h"
#include "ops/dense/bitmask.h"

namespace frugal::compress {

int64_t GroupLayout::code_bytes(int64_t rows_in_group) const {
  const Planes planes = planes_of(bits);
  int64_t byte_rows = 0;
  for (int p = 0; p < planes.count; ++p)
    byte_rows += ceil_div(rows_in_group * planes.width[static_cast<size_t>(p)], 8);
  return byte_rows * cols;
}

int64_t GroupLayout::bytes() const {
  if (groups == 0) return 0;
  return code_offset(groups - 1) + code_bytes(rows_of(groups - 1));
}

int64_t rows_of(const Shape& shape) {
  const int64_t cols = shape.dim() == 0 ? 1 : shape.back();
  return cols == 0 ? 0 : shape.numel() / cols;
}

bool groups_by_column(const Shape& shape, GroupAxis axis) {
  return axis == GroupAxis::column || (axis == GroupAxis::nchw && shape.dim() == 4);
}

GroupLayout make_layout(const Shape& shape, GroupAxis axis, int64_t group, int bits) {
  GroupLayout layout;
  layout.bits = bits;
  layout.numel = shape.numel();
  layout.cols = shape.dim() == 0 ? 1 : shape.back();
  layout.rows = compress::rows_of(shape);
  layout.group_rows = group;
  layout.shared = !groups_by_column(shape, axis);
  if (layout.shared) {
    layout.cols = kRowAxisLanes;
    layout.rows = ceil_div(layout.numel, kRowAxisLanes);
    layout.group_rows = ceil_div(group, 8 * kRowAxisLanes) * 8;
  }
  layout.groups = ceil_div(layout.rows, layout.group_rows);
  return layout;
}

bool can_split(const GroupLayout& layout, const Shape& shape) {
  return layout.bits >= 2 && !layout.shared && ops::bitmask_layout(shape).by_rows;
}

}  // namespace frugal::compress
