#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul.h"
#include "ops/image/conv2d.h"

// A sequence is treated as an image of one row. Saves: x, weight.
namespace frugal {
namespace {

// [A, B, C] as [A, 1, B, C].
Tensor as_image(const Tensor& x) {
  return ops::contiguous(x).view({x.size(0), 1, x.size(1), x.size(2)});
}
Tensor as_sequence(const Tensor& x) { return x.view({x.size(0), x.size(2), x.size(3)}); }

void check_axes(const char* name, const Tensor& x) {
  FRUGAL_CHECK(x.dim() == 3, "[conv1d] expected {} with 3 axes, got {}", name, describe(x));
}

}  // namespace

Variable conv1d(const Variable& x, const Variable& weight, const Variable& bias, int64_t stride,
                int64_t padding, int64_t dilation, int64_t groups) {
  check_axes("x", x.value());
  check_axes("weight", weight.value());
  const Conv2dOptions options{{1, stride}, {0, padding}, {1, dilation}, groups};
  const Tensor y = as_sequence(ops::conv2d(as_image(x.value()), as_image(weight.value()),
                                           bias.defined() ? bias.value() : Tensor(), options));
  // As in conv2d: what a window reaches, and how many windows reach an element.
  const auto window = static_cast<double>(weight.size(1));
  const Use use = Use::product({.input = 1,
                                .gain = window / static_cast<double>(stride),
                                .fan = window * static_cast<double>(weight.size(2))});
  const auto describe = [&](TracedOp& t) {
    t.set("stride", stride);
    t.set("padding", padding);
    t.set("dilation", dilation);
    t.set("groups", groups);
  };
  return record(
      {"conv1d", describe}, {x, weight, bias}, y,
      {save_if(weight.requires_grad(), x).with_use(use), save_if(x.requires_grad(), weight)},
      [options, x_shape = x.shape(), w_shape = weight.shape()](const Backward& b) {
        const Shape wide{x_shape[0], 1, x_shape[1], x_shape[2]};
        const Shape window_shape{w_shape[0], 1, w_shape[1], w_shape[2]};
        const Tensor dy = as_image(b.dy());
        Grads grads(3);
        if (b.needs(1))
          grads[1] = ops::conv2d_backward_weight(dy, as_image(b.saved(0)), window_shape, options)
                         .view(w_shape);
        if (b.needs(0))
          grads[0] =
              as_sequence(ops::conv2d_backward_input(dy, as_image(b.saved(1)), wide, options));
        if (b.needs(2)) grads[2] = ops::linear_backward_bias(b.dy());
        return grads;
      });
}

}  // namespace frugal
