// A linear map and an activation of its output. f32 and f64. Their gradients are the two ops' own
// (ops/elementwise.h, ops/bitmask.h, ops/matmul.h).
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// h = x weight^T + bias, y = gelu(h): x [..., I], weight [O, I], bias [O] or undefined -> [..., O].
// Errors: linear's.
struct LinearGelu {
  Tensor h, y;
};
LinearGelu linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind);

// y = h where it is not <= 0, else 0; the mask (ops/bitmask.h) says where, if asked for.
struct LinearRelu {
  Tensor y, mask;
};
LinearRelu linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool want_mask);

}  // namespace frugal::ops
