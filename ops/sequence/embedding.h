// Rows of a table by their number; f32 and f64, on CUDA f32 and bf16.
#pragma once
#include "ops/sequence/sparse_rows.h"

namespace frugal::ops {

// ids [...] i64, weight [V, H] -> [..., H].  Errors: an id outside [0, V) (on CUDA its row is NaN
// instead, and it has no gradient).
Tensor embedding(const Tensor& ids, const Tensor& weight);
// The gradient of the weight, [V, H]: row v is the sum of dy's rows whose id is v, in their order;
// none for rows equal to padding_idx.  dy [..., H].  Errors: as above.
Tensor embedding_backward(const Tensor& dy, const Tensor& ids, int64_t vocabulary,
                          int64_t padding_idx = -1);
// The same by the rows that dy reaches, with the bits of the whole; on meta as many as there can
// be. Not on CUDA.  Errors: as above.
SparseRows embedding_backward_rows(const Tensor& dy, const Tensor& ids, int64_t vocabulary,
                                   int64_t padding_idx = -1);

// All contiguous.
void embedding_kernel(Cpu, const Tensor& ids, const Tensor& weight, const Tensor& y);
void embedding_kernel(Cuda, const Tensor& ids, const Tensor& weight, const Tensor& y);
void embedding_backward_kernel(Cpu, const Tensor& dy, const Tensor& ids, int64_t padding_idx,
                               const Tensor& dweight);
void embedding_backward_kernel(Cuda, const Tensor& dy, const Tensor& ids, int64_t padding_idx,
                               const Tensor& dweight);

}  // namespace frugal::ops
