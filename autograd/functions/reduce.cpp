#include "ops/dense/reduce.h"

#include "autograd/functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"

namespace frugal {
namespace {

// dy of a reduction, repeated along the reduced axes.
Tensor spread(const Tensor& dy, const Shape& shape, const std::vector<int>& axes) {
  const Shape kept = ops::reduced_shape("sum_backward", shape, axes, true);
  return ops::broadcast_to(ops::contiguous(dy).view(kept), shape);
}

auto describer(const std::vector<int>& axes, bool keep_dim) {
  return [&axes, keep_dim](TracedOp& t) {
    t.set("axes", axes);
    t.set("keep_dim", keep_dim);
  };
}

}  // namespace

// y = sum(x), dx = dy everywhere.
Variable sum(const Variable& x, const std::vector<int>& axes, bool keep_dim) {
  const auto describe = describer(axes, keep_dim);
  return record(
      {"sum", describe}, {x}, ops::sum(x.value(), axes, keep_dim), {},
      [shape = x.shape(), axes](const Backward& b) { return Grads{spread(b.dy(), shape, axes)}; });
}

// y = sum(x) / n, dx = dy / n everywhere.
Variable mean(const Variable& x, const std::vector<int>& axes, bool keep_dim) {
  const auto describe = describer(axes, keep_dim);
  return record({"mean", describe}, {x}, ops::mean(x.value(), axes, keep_dim), {},
                [shape = x.shape(), axes](const Backward& b) {
                  const double n =
                      static_cast<double>(shape.numel()) / static_cast<double>(b.dy().numel());
                  return Grads{spread(ops::affine(b.dy(), 1 / n, 0), shape, axes)};
                });
}

// dx = dy at the first maximum, else 0.  Saves: the index, u8 up to an extent of 256.
Variable max(const Variable& x, int axis, bool keep_dim) {
  const std::vector<int> axes{axis};
  const auto describe = describer(axes, keep_dim);
  const ops::MaxResult result = ops::max(x.value(), axis, keep_dim);
  return record({"max", describe}, {x}, result.values, {save_exact(result.indices)},
                [shape = x.shape(), axis](const Backward& b) {
                  return Grads{ops::max_backward(b.dy(), b.saved(0), shape, axis)};
                });
}

}  // namespace frugal
