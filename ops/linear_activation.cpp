#include "ops/linear_activation.h"

#include "ops/bitmask.h"
#include "ops/checks.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace frugal::ops {
namespace {

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_real(op, "x", x);
  check_dim(op, "weight", weight, 2);
  check_same(op, x, {&weight, &bias});
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1),
               "[{}] expected x [..., {}] for weight {}, got {}", op, weight.size(1),
               weight.shape(), x.shape());
  if (bias.defined()) check_shape(op, "bias", bias, {weight.size(0)});
}

}  // namespace

// Two whole passes: in blocks of rows that stay in a cache, oneDNN packs the weight again for each,
// which takes longer than the pass over h saves.
LinearGelu linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind) {
  check_linear("linear_gelu", x, weight, bias);
  const Tensor h = linear(x, weight, bias);
  return {h, unary(kind == Gelu::exact ? Unary::gelu_exact : Unary::gelu_tanh, h)};
}

LinearRelu linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool want_mask) {
  check_linear("linear_relu", x, weight, bias);
  const Tensor y = linear(x, weight, bias);
  const Tensor mask = want_mask ? empty_bitmask(y.shape(), y.device()) : Tensor();
  dispatch(x.device(), [&](auto backend) { rectify_kernel(backend, y, 0, y, mask); });
  return {y, mask};
}

}  // namespace frugal::ops
