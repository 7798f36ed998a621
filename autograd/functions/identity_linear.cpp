#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// (1 - beta) I + beta weight, in x's dtype.
Tensor mixed(const Tensor& weight, double beta, DType dtype) {
  CategoryScope scope(Category::workspace);
  const Tensor m = ops::affine(weight, beta, 0);
  const Tensor diagonal = m.as_strided({m.size(0)}, {m.size(1) + 1}, m.offset());
  ops::copy_into(diagonal, ops::affine(diagonal, 1, 1 - beta));
  return ops::cast(m, dtype);
}

}  // namespace

Variable identity_linear(const Variable& x, const Variable& weight, double beta) {
  ops::check_dim("identity_linear", "x", x.value(), 2);
  ops::check_shape("identity_linear", "weight", weight.value(), {x.size(1), x.size(1)});
  ops::check_beside("identity_linear", x.value(), {&weight.value()});
  const Use use = Use::product(
      {.input = 1, .gain = beta * beta, .fan = beta * beta * static_cast<double>(x.size(1))});
  return record(
      {"identity_linear", [&](TracedOp& t) { t.set("beta", beta); }}, {x, weight},
      ops::matmul(x.value(), mixed(weight.value(), beta, x.dtype())),
      {save_if(weight.requires_grad(), x).with_use(use), save_if(x.requires_grad(), weight)},
      [beta, dtype = weight.dtype()](const Backward& b) {
        Grads grads(2);
        if (b.needs(0))
          grads[0] = ops::matmul(b.dy(), mixed(b.saved(1), beta, b.dy().dtype()).transpose(0, 1));
        if (b.needs(1)) {
          const Tensor dw = ops::cast(ops::matmul(b.saved(0).transpose(0, 1), b.dy()), dtype);
          ops::scale_inplace(dw, beta);
          grads[1] = dw;
        }
        return grads;
      });
}

}  // namespace frugal
