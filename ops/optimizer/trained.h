// The check that optimizers' ops share.
#pragma once
#include "ops/checks.h"

namespace frugal::ops {

// A parameter, a gradient or an optimizer's state: f32, or f64 where it is not on CUDA; on
// `device`.
inline void check_trained(const char* op, const Tensor& x, Device device) {
  check_real(op, "the parameter", x);
  FRUGAL_CHECK(x.dtype() != DType::bf16, "[{}] expected the parameter of dtype f32, got {}", op,
               describe(x));
  FRUGAL_CHECK(x.device() == device, "[{}] expected all parameters on one device, got {} and {}",
               op, device.str(), x.device().str());
}

}  // namespace frugal::ops
