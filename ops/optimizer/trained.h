// The check that the ops of all optimizers share.
#pragma once
#include "ops/checks.h"

namespace frugal::ops {

// Checks a parameter, a gradient or the state of an optimizer: on `device`, f32, or f64 if the
// device is not CUDA.
inline void check_trained(const char* op, const Tensor& x, Device device) {
  check_real(op, "the parameter", x);
  FRUGAL_CHECK(x.dtype() != DType::bf16, "[{}] expected the parameter of dtype f32, got {}", op,
               describe(x));
  FRUGAL_CHECK(x.device() == device, "[{}] expected all parameters on one device, got {} and {}",
               op, device.str(), x.device().str());
}

}  // namespace frugal::ops
