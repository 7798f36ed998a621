#include "ops/image/conv_transpose2d.h"

#include <algorithm>

#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/inplace.h"
#include "ops/image/conv2d.h"

namespace frugal::ops {
namespace {

constexpr const char* kConvTranspose2d = "conv_transpose2d";
constexpr const char* kConvTranspose2dBackward = "conv_transpose2d backward";

// The convolution whose adjoint this is. It maps the shape of our output to the shape of our input.
Conv2dOptions as_conv2d(const ConvTranspose2dOptions& o) {
  return {o.stride, o.padding, o.dilation, o.groups};
}

Shape output_shape(const char* op, const Shape& x, const Shape& weight,
                   const ConvTranspose2dOptions& o) {
  FRUGAL_CHECK(x.dim() == 4 && weight.dim() == 4 && o.groups >= 1 && x[3] == weight[0] &&
                   x[3] % o.groups == 0,
               "[{}] expected a weight [C, R, S, K/groups] for {} channels and {} groups, got {}",
               op, x.back(), o.groups, weight);
  Shape y{x[0], 0, 0, weight[3] * o.groups};
  for (int axis = 1; axis <= 2; ++axis) {
    const auto i = static_cast<size_t>(axis - 1);
    FRUGAL_CHECK(in_range(o.stride[i], 1) && in_range(o.dilation[i], 1) &&
                     in_range(o.padding[i], 0) && in_range(o.output_padding[i], 0) &&
                     o.output_padding[i] < std::max(o.stride[i], o.dilation[i]),
                 "[{}] expected a stride and dilation of at least 1, padding of at least 0 and an "
                 "output padding in [0, max(stride, dilation)), got {}, {}, {} and {}",
                 op, o.stride[i], o.dilation[i], o.padding[i], o.output_padding[i]);
    y[axis] = (x[axis] - 1) * o.stride[i] - 2 * o.padding[i] + o.dilation[i] * (weight[axis] - 1) +
              o.output_padding[i] + 1;
    FRUGAL_CHECK(weight[axis] >= 1 && x[axis] >= 1 && in_range(y[axis], 1),
                 "[{}] expected an output of at least 1x1 from {} and {}, got {}", op, x, weight,
                 y[axis]);
  }
  return y;
}

}  // namespace

Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose2dOptions& options) {
  check_dim(kConvTranspose2d, "x", x, 4);
  check_dim(kConvTranspose2d, "weight", weight, 4);
  check_real(kConvTranspose2d, "x", x);
  check_beside(kConvTranspose2d, x, {&weight, &bias});
  const Shape shape = output_shape(kConvTranspose2d, x.shape(), weight.shape(), options);
  if (bias.defined()) check_shape(kConvTranspose2d, "bias", bias, {shape[3]});
  // The convolution from K to C channels has exactly this weight, [C, R, S, K/groups].
  const Tensor in = contiguous(x), w = contiguous(weight);
  Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) {
    conv2d_backward_input_kernel(backend, y, in, w, as_conv2d(options));
  });
  if (bias.defined()) accumulate_row(y, bias);
  return y;
}

Tensor conv_transpose2d_backward_input(const Tensor& dy, const Tensor& weight, const Shape& x_shape,
                                       const ConvTranspose2dOptions& options) {
  check_real(kConvTranspose2dBackward, "dy", dy);
  check_beside(kConvTranspose2dBackward, dy, {&weight});
  check_shape(kConvTranspose2dBackward, "dy", dy,
              output_shape(kConvTranspose2dBackward, x_shape, weight.shape(), options));
  const Tensor gradient = contiguous(dy), w = contiguous(weight);
  Tensor dx = Tensor::empty(x_shape, dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { conv2d_kernel(backend, dx, gradient, w, {}, as_conv2d(options)); });
  return dx;
}

Tensor conv_transpose2d_backward_weight(const Tensor& dy, const Tensor& x,
                                        const Shape& weight_shape,
                                        const ConvTranspose2dOptions& options) {
  check_real(kConvTranspose2dBackward, "dy", dy);
  check_same(kConvTranspose2dBackward, dy, {&x});
  check_shape(kConvTranspose2dBackward, "dy", dy,
              output_shape(kConvTranspose2dBackward, x.shape(), weight_shape, options));
  const Tensor gradient = contiguous(dy), in = contiguous(x);
  const DType dtype = dtype_beside(dy);
  Tensor dweight = Tensor::empty(weight_shape, dtype, dy.device());
  dispatch(dy.device(), [&](auto backend) {
    conv2d_backward_weight_kernel(backend, dweight, in, gradient, as_conv2d(options));
  });
  return dweight;
}

}  // namespace frugal::ops
