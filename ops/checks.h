// Checks shared by the ops: each throws Error "[op] expected ..., got ...".
#pragma once
#include <initializer_list>

#include "core/tensor.h"

namespace frugal::ops {

inline void check_defined(const char* op, const char* name, const Tensor& tensor) {
  FRUGAL_CHECK(tensor.defined(), "[{}] expected {} to be a tensor, got an undefined one", op, name);
}

inline void check_dim(const char* op, const char* name, const Tensor& tensor, int dim) {
  check_defined(op, name, tensor);
  FRUGAL_CHECK(tensor.dim() == dim, "[{}] expected {} with {} axes, got {}", op, name, dim,
               describe(tensor));
}

inline void check_shape(const char* op, const char* name, const Tensor& tensor,
                        const Shape& shape) {
  check_defined(op, name, tensor);
  FRUGAL_CHECK(tensor.shape() == shape, "[{}] expected {} of shape {}, got {}", op, name, shape,
               describe(tensor));
}

// f32 or f64, what the compute kernels take.
inline void check_real(const char* op, const char* name, const Tensor& tensor) {
  check_defined(op, name, tensor);
  FRUGAL_CHECK(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64,
               "[{}] expected {} of dtype f32 or f64, got {}", op, name, describe(tensor));
}

// Same dtype and device as the first.
inline void check_same(const char* op, const Tensor& first,
                       std::initializer_list<const Tensor*> rest) {
  for (const Tensor* tensor : rest) {
    if (!tensor->defined()) continue;
    FRUGAL_CHECK(tensor->dtype() == first.dtype() && tensor->device() == first.device(),
                 "[{}] expected tensors of one dtype and device, got {} and {}", op,
                 describe(first), describe(*tensor));
  }
}

}  // namespace frugal::ops
