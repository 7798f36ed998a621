#include "core/memory/borrowed.h"

namespace frugal {

Tensor borrow(void* data, const Shape& shape, const Shape& strides, DType dtype, Device device,
              std::shared_ptr<void> owner) {
  FRUGAL_CHECK(device != kMeta, "[borrow] expected memory of a device, got meta");
  FRUGAL_CHECK(strides.dim() == shape.dim(),
               "[borrow] expected a stride for each axis of {}, got {}", shape, strides);
  int64_t elements = shape.numel() > 0 ? 1 : 0;  // from the first one to the last one
  for (int axis = 0; axis < shape.dim() && elements > 0; ++axis) {
    FRUGAL_CHECK(strides[axis] >= 0, "[borrow] expected strides of at least 0, got {}", strides);
    elements += (shape[axis] - 1) * strides[axis];
  }
  if (elements == 0) return Tensor::empty(shape, dtype, device);
  FRUGAL_CHECK(data != nullptr, "[borrow] expected memory for {}, got none", shape);
  const LentBlock lent(data, std::move(owner));
  return Tensor::empty({elements}, dtype, device).as_strided(shape, strides, 0);
}

}  // namespace frugal
