// Rows of a table, chosen by number; f32, bf16 and f64, which CUDA has not.
#pragma once
#include "ops/sequence/sparse_rows.h"

namespace frugal::ops {

// ids [...] i64, weight [V, H] -> [..., H].  Errors: an id outside [0, V) (on CUDA its row is NaN
// instead, and it adds nothing to the gradient).
Tensor embedding(const Tensor& ids, const Tensor& weight);
// The gradient of the weight, [V, H]: row v is the sum of the rows of dy whose id is v, in their
// order. Rows with the id padding_idx get none.  dy [..., H].  Errors: as in embedding().
Tensor embedding_backward(const Tensor& dy, const Tensor& ids, int64_t vocabulary,
                          int64_t padding_idx = -1);
// embedding_backward() as SparseRows: only the rows that dy reaches, with the same bits. On `meta`
// it has as many rows as are possible. Not on CUDA.  Errors: as in embedding().
SparseRows embedding_backward_rows(const Tensor& dy, const Tensor& ids, int64_t vocabulary,
                                   int64_t padding_idx = -1);

// REQUIRES: all tensors are contiguous.
void embedding_kernel(Cpu, const Tensor& ids, const Tensor& weight, const Tensor& y);
void embedding_kernel(Cuda, const Tensor& ids, const Tensor& weight, const Tensor& y);
void embedding_backward_kernel(Cpu, const Tensor& dy, const Tensor& ids, int64_t padding_idx,
                               const Tensor& dweight);
void embedding_backward_kernel(Cuda, const Tensor& dy, const Tensor& ids, int64_t padding_idx,
                               const Tensor& dweight);

}  // namespace frugal::ops
