#include "autograd/graph_functions.h"
#include "autograd/record.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/inplace.h"
#include "ops/matmul.h"

namespace frugal {
namespace {

// (1 - beta) I + beta weight.
Tensor mixed(const Tensor& weight, double beta) {
  CategoryScope scope(Category::workspace);
  const Tensor m = ops::affine(weight, beta, 0);
  const Tensor diagonal = m.as_strided({m.size(0)}, {m.size(1) + 1}, m.offset());
  ops::copy_into(diagonal, ops::affine(diagonal, 1, 1 - beta));
  return m;
}

}  // namespace

Variable identity_linear(const Variable& x, const Variable& weight, double beta) {
  ops::check_dim("identity_linear", "x", x.value(), 2);
  ops::check_shape("identity_linear", "weight", weight.value(), {x.size(1), x.size(1)});
  ops::check_same("identity_linear", x.value(), {&weight.value()});
  const Use use{Use::product, 1, beta * beta, beta * beta * static_cast<double>(x.size(1))};
  return record("identity_linear", {x, weight}, ops::matmul(x.value(), mixed(weight.value(), beta)),
                {save(x).with_use(use), save(weight)}, [beta](const Backward& b) {
                  Grads grads(2);
                  if (b.needs(0))
                    grads[0] = ops::matmul(b.dy(), mixed(b.saved(1), beta).transpose(0, 1));
                  if (b.needs(1)) {
                    const Tensor dw = ops::matmul(b.saved(0).transpose(0, 1), b.dy());
                    ops::scale_inplace(dw, beta);
                    grads[1] = dw;
                  }
                  return grads;
                });
}

}  // namespace frugal
