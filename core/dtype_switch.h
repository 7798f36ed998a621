// Calls f with a value of the C++ type that a dtype stands for: with_dtype(t.dtype(), [&](auto
// zero) { using T = decltype(zero); ... }).
#pragma once
#include "core/dtype.h"
#include "core/error.h"

namespace frugal {

template <class F>
auto with_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64:
      return f(double{});
    case DType::f32:
      return f(float{});
    case DType::bf16:
      return f(BFloat16{});
    case DType::f16:
      return f(Float16{});
    case DType::i64:
      return f(int64_t{});
    case DType::i32:
      return f(int32_t{});
    case DType::u8:
      return f(uint8_t{});
    case DType::bool_:
      return f(bool{});
  }
  throw InternalError("unknown dtype");
}

// with_dtype() for f32 and f64 only. REQUIRES: dtype is one of them.
template <class F>
auto with_real(DType dtype, F&& f) {
  if (dtype == DType::f64) return f(double{});
  FRUGAL_ASSERT(dtype == DType::f32);
  return f(float{});
}

}  // namespace frugal
