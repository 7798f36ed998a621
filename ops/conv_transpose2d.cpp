#include "ops/conv_transpose2d.h"

#include <algorithm>

#include "ops/checks.h"
#include "ops/conv2d.h"
#include "ops/inplace.h"

namespace frugal::ops {
namespace {

constexpr const char* kOp = "conv_transpose2d";

// The convolution whose adjoint this is: from our output's shape to our input's.
Conv2dOptions adjoint(const ConvTranspose2dOptions& o) {
  return {o.stride, o.padding, o.dilation, o.groups};
}

Shape output_shape(const Shape& x, const Shape& weight, const ConvTranspose2dOptions& o) {
  FRUGAL_CHECK(o.groups >= 1 && x[3] == weight[0] && x[3] % o.groups == 0,
               "[{}] expected a weight [C, R, S, K/groups] for {} channels and {} groups, got {}",
               kOp, x[3], o.groups, weight);
  Shape y{x[0], 0, 0, weight[3] * o.groups};
  for (int axis = 1; axis <= 2; ++axis) {
    const auto i = static_cast<size_t>(axis - 1);
    FRUGAL_CHECK(o.stride[i] >= 1 && o.dilation[i] >= 1 && o.padding[i] >= 0 &&
                     o.output_padding[i] >= 0 &&
                     o.output_padding[i] < std::max(o.stride[i], o.dilation[i]),
                 "[{}] expected a stride and dilation of at least 1 and an output padding in "
                 "[0, max(stride, dilation)), got {}, {} and {}",
                 kOp, o.stride[i], o.dilation[i], o.output_padding[i]);
    y[axis] = (x[axis] - 1) * o.stride[i] - 2 * o.padding[i] + o.dilation[i] * (weight[axis] - 1) +
              o.output_padding[i] + 1;
    FRUGAL_CHECK(y[axis] >= 1, "[{}] expected an output of at least 1x1 from {} and {}, got {}",
                 kOp, x, weight, y[axis]);
  }
  return y;
}

}  // namespace

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  check_dim(kOp, "x", x, 4);
  check_dim(kOp, "weight", weight, 4);
  check_real(kOp, "x", x);
  check_same(kOp, x, {&weight, &bias});
  const Shape shape = output_shape(x.shape(), weight.shape(), options);
  if (bias.defined()) check_shape(kOp, "bias", bias, {shape[3]});
  // The convolution [K] -> [C] has exactly this weight, [C, R, S, K/groups].
  Tensor y = conv2d_backward_input(x, weight, shape, adjoint(options));
  if (bias.defined()) accumulate_row(y, bias);
  return y;
}

Tensor conv_transpose2d_backward_input(const Tensor& dy, const Tensor& weight,
                                       const ConvTranspose2dOptions& options) {
  return conv2d(dy, weight, {}, adjoint(options));
}

Tensor conv_transpose2d_backward_weight(const Tensor& dy, const Tensor& x,
                                        const Shape& weight_shape,
                                        const ConvTranspose2dOptions& options) {
  return conv2d_backward_weight(x, dy, weight_shape, adjoint(options));
}

}  // namespace frugal::ops
