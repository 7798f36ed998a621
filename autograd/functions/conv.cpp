#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/conv2d.h"
#include "ops/conv_transpose2d.h"
#include "ops/reduce.h"

namespace frugal {
namespace {

// The gradient of a bias [K]: dy summed over all but its last axis.
Tensor bias_gradient(const Tensor& dy) { return ops::sum_to(dy, {dy.shape().back()}); }

}  // namespace

Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv2dOptions& options) {
  Tensor y =
      ops::conv2d(x.value(), weight.value(), bias.defined() ? bias.value() : Tensor(), options);
  return record("conv2d", {x, weight, bias}, y, {save(x), save(weight)},
                [x_shape = x.shape(), w_shape = weight.shape(), options](const Backward& b) {
                  Grads grads(3);
                  if (b.needs(0))
                    grads[0] = ops::conv2d_backward_input(b.dy(), b.saved(1), x_shape, options);
                  if (b.needs(1))
                    grads[1] = ops::conv2d_backward_weight(b.dy(), b.saved(0), w_shape, options);
                  if (b.needs(2)) grads[2] = bias_gradient(b.dy());
                  return grads;
                });
}

Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const ConvTranspose2dOptions& options) {
  Tensor y = ops::conv_transpose2d(x.value(), weight.value(),
                                   bias.defined() ? bias.value() : Tensor(), options);
  return record(
      "conv_transpose2d", {x, weight, bias}, y, {save(x), save(weight)},
      [x_shape = x.shape(), w_shape = weight.shape(), options](const Backward& b) {
        Grads grads(3);
        if (b.needs(0))
          grads[0] = ops::conv_transpose2d_backward_input(b.dy(), b.saved(1), x_shape, options);
        if (b.needs(1))
          grads[1] = ops::conv_transpose2d_backward_weight(b.dy(), b.saved(0), w_shape, options);
        if (b.needs(2)) grads[2] = bias_gradient(b.dy());
        return grads;
      });
}

}  // namespace frugal
