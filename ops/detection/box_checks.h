// Checks that the ops of ops/detection share. Internal.
#pragma once
#include "ops/checks.h"

namespace frugal::ops {

inline void check_box_dtype(const char* op, const char* name, const Tensor& x) {
  check_real(op, name, x);
  FRUGAL_CHECK(x.dtype() != DType::bf16,
               "[{}] expected {} of dtype f32, because bf16 is too coarse for pixels; got {}", op,
               name, describe(x));
}

inline void check_boxes(const char* op, const char* name, const Tensor& x) {
  check_dim(op, name, x, 2);
  check_box_dtype(op, name, x);
  FRUGAL_CHECK(x.size(1) == 4, "[{}] expected {} [N, 4], got {}", op, name, describe(x));
}

inline void check_i64(const char* op, const char* name, const Tensor& x, const Shape& shape,
                      Device device) {
  check_shape(op, name, x, shape);
  FRUGAL_CHECK(x.dtype() == DType::i64 && x.device() == device,
               "[{}] expected {} of dtype i64 on {}, got {}", op, name, device.str(), describe(x));
}

}  // namespace frugal::ops
