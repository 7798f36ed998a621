// Checks shared by the ops: each throws Error "[op] expected ..., got ...".
#pragma once
#include <cstdint>
#include <initializer_list>

#include "core/computed.h"
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

// What compute kernels take: f32 and bf16 everywhere, also f64 on the CPU.
inline void check_real(const char* op, const char* name, const Tensor& tensor) {
  check_defined(op, name, tensor);
  const bool cuda = tensor.device().type == DeviceType::cuda;
  FRUGAL_CHECK(is_computed(tensor.dtype()) && !(cuda && tensor.dtype() == DType::f64),
               "[{}] expected {} of dtype f32{} bf16, got {}", op, name, cuda ? " or" : ", f64 or",
               describe(tensor));
}

// Whether an option or an extent lies in [least, 2^31), which oneDNN takes.
inline bool in_range(int64_t value, int64_t least) { return value >= least && value <= INT32_MAX; }

// The dtype of parameters, statistics and losses that belong to activations of that dtype.
inline DType dtype_beside(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }
inline DType dtype_beside(const Tensor& x) { return dtype_beside(x.dtype()); }

// Checks a parameter, a statistic or a gradient of one that is used together with the activations
// `x`: on the device of x, and of its dtype, or f32 where x is bf16.
inline void check_beside(const char* op, const Tensor& x,
                         std::initializer_list<const Tensor*> rest) {
  const DType dtype = dtype_beside(x);
  for (const Tensor* tensor : rest) {
    if (!tensor->defined()) continue;
    FRUGAL_CHECK(tensor->dtype() == dtype && tensor->device() == x.device(),
                 "[{}] expected tensors of dtype {} on {}, got {}", op, name_of(dtype),
                 x.device().str(), describe(*tensor));
  }
}

// Checks that every tensor has the dtype and device of the first.
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
