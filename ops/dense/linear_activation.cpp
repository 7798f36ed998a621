#include "ops/dense/linear_activation.h"

#include "ops/checks.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

namespace frugal::ops {
namespace {

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_real(op, "x", x);
  check_dim(op, "weight", weight, 2);
  check_beside(op, x, {&weight, &bias});
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1),
               "[{}] expected x [..., {}] for weight {}, got {}", op, weight.size(1),
               weight.shape(), x.shape());
  if (bias.defined()) check_shape(op, "bias", bias, {weight.size(0)});
}

// Checks tensors that only Frugal's own code passes.
void check_like(const Tensor& h, std::initializer_list<const Tensor*> others) {
  check_real("gelu", "h", h);
  check_same("gelu", h, others);
  FRUGAL_ASSERT(h.is_contiguous());
  for (const Tensor* other : others)
    FRUGAL_ASSERT(!other->defined() || (other->shape() == h.shape() && other->is_contiguous()));
}

}  // namespace

// On the CPU these are two whole passes. In blocks of rows that stay in a cache, oneDNN would pack
// the weight again for each block, which takes longer than the second pass over h.
LinearGelu linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind,
                       bool leaves_y) {
  check_linear("linear_gelu", x, weight, bias);
  const Tensor h = linear(x, weight, bias);
  if (leaves_y) return {h, {}};
  return {h, unary(unary_of(kind), h)};
}

void gelu_into(Gelu kind, const Tensor& h, const Tensor& variance, const Tensor& y) {
  check_like(h, {&variance, &y});
  dispatch(h.device(), [&](auto backend) {
    if (variance.defined())
      unary_estimate_kernel(backend, unary_of(kind), h, variance, y);
    else
      unary_kernel(backend, unary_of(kind), h, y);
  });
  y.bump_version();
}

void gelu_backward_into(Gelu kind, const Tensor& dy, const Tensor& h, const Tensor& variance,
                        const Tensor& dh) {
  check_like(h, {&dy, &variance, &dh});
  dispatch(h.device(), [&](auto backend) {
    if (variance.defined())
      unary_backward_estimate_kernel(backend, unary_of(kind), dy, h, variance, dh);
    else
      unary_backward_kernel(backend, unary_of(kind), dy, h, dh);
  });
  dh.bump_version();
}

LinearRelu linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool want_mask) {
  check_linear("linear_relu", x, weight, bias);
  const Tensor y = linear(x, weight, bias);
  const Tensor mask = want_mask ? empty_bitmask(y.shape(), y.device()) : Tensor();
  dispatch(x.device(), [&](auto backend) { rectify_kernel(backend, y, 0, y, mask); });
  return {y, mask};
}

}  // namespace frugal::ops
