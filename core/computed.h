// The dtypes that ops compute with: f64, f32 and bf16. Kernels read bf16 as f32.
#pragma once
#include <type_traits>

#include "core/dtype_switch.h"

namespace frugal {

inline bool is_computed(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16;
}

// The type in which elements of type T are compared, multiplied and added.
template <class T>
using Computed = std::conditional_t<std::is_same_v<T, BFloat16>, float, T>;

// with_dtype() for the dtypes above. REQUIRES: dtype is one of them.
template <class F>
auto with_computed(DType dtype, F&& f) {
  return dtype == DType::bf16 ? f(BFloat16{}) : with_real(dtype, f);
}

}  // namespace frugal
