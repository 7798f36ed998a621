// A linear map and an activation of its output; dtypes as linear. Other gradients are the two ops'
// own (ops/dense/elementwise.h, ops/dense/bitmask.h, ops/dense/matmul.h).
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// h = x weight^T + bias, y = gelu(h): x [..., I], weight [O, I], bias [O] or undefined -> [..., O].
// Errors: linear's.
// `leaves_y`: y stays undefined.
struct LinearGelu {
  Tensor h, y;
};
LinearGelu linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind,
                       bool leaves_y = false);

// y = gelu(h), and dh = dy gelu'(h), into contiguous tensors like h that are given: y may be h or
// the variance, dh may be dy. With a variance of h, unary_estimate() and unary_backward_estimate().
void gelu_into(Gelu kind, const Tensor& h, const Tensor& variance, const Tensor& y);
void gelu_backward_into(Gelu kind, const Tensor& dy, const Tensor& h, const Tensor& variance,
                        const Tensor& dh);

// y = h where it is not <= 0, else 0; the mask (ops/dense/bitmask.h) says where, if asked for.
struct LinearRelu {
  Tensor y, mask;
};
LinearRelu linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool want_mask);

}  // namespace frugal::ops
