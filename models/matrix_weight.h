// The weight of a linear product: a parameter, or packed while it is frozen.
#pragma once
#include "autograd/transformer_functions.h"
#include "ops/dense/packed_matrix.h"

namespace frugal {

struct MatrixWeight {
  Variable whole;            // [out, in]; undefined while it is packed
  ops::PackedMatrix packed;  // defined() while `whole` is not

  int64_t out() const { return packed.defined() ? packed.rows : whole.size(0); }
  DType dtype() const { return packed.defined() ? DType::f32 : whole.dtype(); }  // as unpacked
  int64_t in() const { return packed.defined() ? packed.columns : whole.size(1); }
  // Rows [begin, end), which are unpacked to this dtype if the weight is packed.
  Tensor rows(int64_t begin, int64_t end, DType dtype) const;
  // For functions that read the whole weight.  Errors: it is packed.
  const Variable& variable() const;
};

// x weight^T + bias
Variable linear(const Variable& x, const MatrixWeight& weight, const Variable& bias);
Variable linear_gelu(const Variable& x, const MatrixWeight& weight, const Variable& bias,
                     Gelu kind);

}  // namespace frugal
