#include "ops/dense/matmul.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/reduce.h"

namespace frugal {

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  Tensor y = ops::linear(x.value(), weight.value(), bias.defined() ? bias.value() : Tensor());
  const Use use = Use::product({.input = 1, .fan = static_cast<double>(weight.shape().back())});
  return record(
      "linear", {x, weight, bias}, y,
      {save_if(weight.requires_grad(), x).with_use(use), save_if(x.requires_grad(), weight)},
      [](const Backward& b) {
        // x may have been unpacked, so it is released before dx is made.
        Grads grads(3);
        if (b.needs(1)) grads[1] = ops::linear_backward_weight(b.dy(), b.saved(0));
        if (b.needs(2)) grads[2] = ops::linear_backward_bias(b.dy());
        if (b.needs(0)) grads[0] = ops::linear_backward_input(b.dy(), b.saved(1));
        return grads;
      });
}

Variable matmul(const Variable& a, const Variable& b) {
  // Each operand is saved only if the other one needs a gradient.
  const Save keep_a = save_if(b.requires_grad(), a), keep_b = save_if(a.requires_grad(), b);
  return record(
      "matmul", {a, b}, ops::matmul(a.value(), b.value()), {keep_a, keep_b},
      [a_shape = a.shape(), b_shape = b.shape()](const Backward& back) {
        Grads grads(2);
        if (back.needs(0))
          grads[0] = ops::sum_to(ops::matmul(back.dy(), back.saved(1).transpose(-1, -2)), a_shape);
        if (back.needs(1))
          grads[1] = ops::sum_to(ops::matmul(back.saved(0).transpose(-1, -2), back.dy()), b_shape);
        return grads;
      });
}

}  // namespace frugal
