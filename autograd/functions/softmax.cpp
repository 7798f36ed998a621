#include "ops/softmax.h"

#include "autograd/functions.h"
#include "autograd/record.h"

namespace frugal {

// y = e^x / sum e^x, dx = y (dy - <dy, y>).  Saves: y.
Variable softmax(const Variable& x, int axis) {
  const Tensor y = ops::softmax(x.value(), axis);
  return record("softmax", {x}, y, {save_output(y)}, [axis](const Backward& b) {
    return Grads{ops::softmax_backward(b.dy(), b.saved(0), axis)};
  });
}

// y = x - log sum e^x, dx = dy - e^y sum dy.  Saves: y.
Variable log_softmax(const Variable& x, int axis) {
  const Tensor y = ops::log_softmax(x.value(), axis);
  return record("log_softmax", {x}, y, {save_output(y)}, [axis](const Backward& b) {
    return Grads{ops::log_softmax_backward(b.dy(), b.saved(0), axis)};
  });
}

}  // namespace frugal
