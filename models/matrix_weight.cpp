#include "models/matrix_weight.h"

#include "autograd/functions.h"
#include "autograd/packed_functions.h"

namespace frugal {

Tensor MatrixWeight::rows(int64_t begin, int64_t end, DType dtype) const {
  return packed.defined() ? ops::unpack_tile(packed, {begin, end - begin, 0, packed.columns}, dtype)
                          : whole.value().slice(0, begin, end);
}

const Variable& MatrixWeight::variable() const {
  FRUGAL_CHECK(!packed.defined(),
               "[linear] expected a weight [{}, {}] that is whole, because it is read as a whole "
               "here, got one in {}; model.frozen_layers can leave it out",
               packed.rows, packed.columns, ops::name_of(packed.format));
  return whole;
}

Variable linear(const Variable& x, const MatrixWeight& weight, const Variable& bias) {
  return weight.packed.defined() ? packed_linear(x, weight.packed, bias)
                                 : linear(x, weight.whole, bias);
}

Variable linear_gelu(const Variable& x, const MatrixWeight& weight, const Variable& bias,
                     Gelu kind) {
  return weight.packed.defined() ? gelu(packed_linear(x, weight.packed, bias), kind)
                                 : linear_gelu(x, weight.whole, bias, kind);
}

}  // namespace frugal
