// A linear map followed by an activation; dtypes as in linear(). The gradients that are not here
// are those of the two ops (ops/dense/elementwise.h, ops/dense/bitmask.h, ops/dense/matmul.h).
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// h = x weight^T + bias, y = gelu(h): x [..., I], weight [O, I], bias [O] or undefined -> [..., O].
// Errors: those of linear().
// `leaves_y`: y is not computed and stays undefined.
struct LinearGelu {
  Tensor h, y;
};
LinearGelu linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind,
                       bool leaves_y = false);

// Writes y = gelu(h) and dh = dy gelu'(h) into contiguous tensors of the shape of h, where they are
// given. y may be h or `variance`; dh may be dy. If `variance` is defined, they use
// unary_estimate() and unary_backward_estimate().
void gelu_into(Gelu kind, const Tensor& h, const Tensor& variance, const Tensor& y);
void gelu_backward_into(Gelu kind, const Tensor& dy, const Tensor& h, const Tensor& variance,
                        const Tensor& dh);

// y = 0 where h <= 0, else h. A bit of the mask (ops/dense/bitmask.h) is set where y = h; the mask
// is undefined unless asked for.
struct LinearRelu {
  Tensor y, mask;
};
LinearRelu linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool want_mask);

}  // namespace frugal::ops
