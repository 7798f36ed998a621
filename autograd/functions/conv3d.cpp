#include "ops/image/conv3d.h"

#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/volume_functions.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// As in conv2d: what a window reaches, and how many windows reach an element.
double cells(const Shape& weight) { return static_cast<double>(weight[1] * weight[2] * weight[3]); }
double volume(const Triple& stride) {
  return static_cast<double>(stride[0] * stride[1] * stride[2]);
}
std::vector<int64_t> list(const Triple& values) { return {values.begin(), values.end()}; }

}  // namespace

Variable conv3d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv3dOptions& options) {
  const Tensor y =
      ops::conv3d(x.value(), weight.value(), bias.defined() ? bias.value() : Tensor(), options);
  const Shape& w = weight.shape();
  const Use use = Use::product({.input = 1,
                                .gain = cells(w) / volume(options.stride),
                                .fan = cells(w) * static_cast<double>(w[4])});
  const auto describe = [&](TracedOp& t) {
    t.set("stride", list(options.stride));
    t.set("padding", list(options.padding));
    t.set("dilation", list(options.dilation));
    t.set("groups", options.groups);
  };
  return record(
      {"conv3d", describe}, {x, weight, bias}, y,
      {save_if(weight.requires_grad(), x).with_use(use), save_if(x.requires_grad(), weight)},
      [x_shape = x.shape(), w_shape = weight.shape(), options](const Backward& b) {
        Grads grads(3);
        // The gradient of the weight comes first, so that x is released before dx is made.
        if (b.needs(1))
          grads[1] = ops::conv3d_backward_weight(b.dy(), b.saved(0), w_shape, options);
        if (b.needs(0)) grads[0] = ops::conv3d_backward_input(b.dy(), b.saved(1), x_shape, options);
        if (b.needs(2)) grads[2] = ops::linear_backward_bias(b.dy());
        return grads;
      });
}

Variable conv_transpose3d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose3dOptions& options) {
  const Tensor y = ops::conv_transpose3d(x.value(), weight.value(),
                                         bias.defined() ? bias.value() : Tensor(), options);
  // x and dy have the roles of each other in a convolution.
  const Shape& w = weight.shape();
  const Use use = Use::product(
      {.input = 1,
       .gain = cells(w),
       .fan = cells(w) / volume(options.stride) * static_cast<double>(w[0] / options.groups)});
  const auto describe = [&](TracedOp& t) {
    t.set("stride", list(options.stride));
    t.set("padding", list(options.padding));
    t.set("output_padding", list(options.output_padding));
    t.set("dilation", list(options.dilation));
    t.set("groups", options.groups);
  };
  return record(
      {"conv_transpose3d", describe}, {x, weight, bias}, y,
      {save_if(weight.requires_grad(), x).with_use(use), save_if(x.requires_grad(), weight)},
      [x_shape = x.shape(), w_shape = weight.shape(), options](const Backward& b) {
        Grads grads(3);
        if (b.needs(1))
          grads[1] = ops::conv_transpose3d_backward_weight(b.dy(), b.saved(0), w_shape, options);
        if (b.needs(0))
          grads[0] = ops::conv_transpose3d_backward_input(b.dy(), b.saved(1), x_shape, options);
        if (b.needs(2)) grads[2] = ops::linear_backward_bias(b.dy());
        return grads;
      });
}

}  // namespace frugal
