// The weight of a linear product: a parameter, or packed while it is frozen.
#pragma once
#include "autograd/transformer_functions.h"
#include "ops/dense/packed_matrix.h"

namespace frugal {

struct MatrixWeight {
  Variable whole;            // [out, in]; undefined while it is packed
  ops::PackedMatrix packed;  // defined() while `whole` is not

  int64_t out() const { return packed.defined() ? packed.rows : whole.size(0); }
  int64_t in() const { return packed.defined() ? packed.columns : whole.size(1); }
  // For functions that read the whole weight.  Errors: it is packed.
  const Variable& variable() const;
};

// x weight^T + bias
Variable linear(const Variable& x, const MatrixWeight& weight, const Variable& bias);
Variable linear_gelu(const Variable& x, const MatrixWeight& weight, const Variable& bias,
                     Gelu kind);

}  // namespace frugal
