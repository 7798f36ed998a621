#include "ops/linear_activation.h"

#include <algorithm>

#include "ops/bitmask.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"

namespace frugal::ops {
namespace {

// Elements of h that are made before their activation: they stay in the second cache.
constexpr int64_t kBlock = 1 << 18;

void check_linear(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_real(op, "x", x);
  check_dim(op, "weight", weight, 2);
  check_same(op, x, {&weight, &bias});
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) == weight.size(1),
               "[{}] expected x [..., {}] for weight {}, got {}", op, weight.size(1),
               weight.shape(), x.shape());
  if (bias.defined()) check_shape(op, "bias", bias, {weight.size(0)});
}

int64_t row_count(const Tensor& x) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.dim(); ++axis) rows *= x.shape()[axis];
  return rows;
}

}  // namespace

void linear_gelu_kernel(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind,
                        const LinearGelu& out) {
  const Unary op = kind == Gelu::exact ? Unary::gelu_exact : Unary::gelu_tanh;
  const int64_t rows = x.size(0), width = std::max<int64_t>(weight.size(0), 1);
  const int64_t step = std::max<int64_t>(kBlock / width, 64);
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t end = std::min(rows, begin + step);
    const Tensor h = out.h.slice(0, begin, end);
    matmul_kernel(Cpu{}, h, x.slice(0, begin, end), weight.transpose(0, 1), bias);
    unary_kernel(Cpu{}, op, h, out.y.slice(0, begin, end));
  }
}

LinearGelu linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias, Gelu kind) {
  check_linear("linear_gelu", x, weight, bias);
  Shape shape = x.shape();
  shape[shape.dim() - 1] = weight.size(0);
  const LinearGelu out{Tensor::empty(shape, x.dtype(), x.device()),
                       Tensor::empty(shape, x.dtype(), x.device())};
  const int64_t rows = row_count(x);
  const LinearGelu flat{out.h.view({rows, weight.size(0)}), out.y.view({rows, weight.size(0)})};
  const Tensor in = contiguous(x).view({rows, x.size(-1)}), w = contiguous(weight);
  const Tensor b = bias.defined() ? contiguous(bias) : bias;
  dispatch(x.device(), [&](auto backend) { linear_gelu_kernel(backend, in, w, b, kind, flat); });
  return out;
}

LinearRelu linear_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, bool want_mask) {
  check_linear("linear_relu", x, weight, bias);
  const Tensor y = linear(x, weight, bias);
  const Tensor mask = want_mask ? empty_bitmask(y.shape(), y.device()) : Tensor();
  dispatch(x.device(), [&](auto backend) { rectify_kernel(backend, y, 0, y, mask); });
  return {y, mask};
}

}  // namespace frugal::ops
