// SparseRows: a table most of whose rows are 0, by the others: the gradient of an embedding. On the
// CPU and meta.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct SparseRows {
  Tensor ids;        // [n] i64, ascending, none twice
  Tensor rows;       // [n, H], f32 or f64; row i is row ids[i] of the table
  int64_t size = 0;  // rows of the table
  bool defined() const { return rows.defined(); }
  Shape shape() const { return {size, rows.size(1)}; }
};

// out += the table's rows from `begin` on. out [m, H] contiguous; begin + m at most size.
void add_rows(const Tensor& out, const SparseRows& sparse, int64_t begin = 0);
// The sum, term by term: the bits of the sum of the tables.  Errors: of other shapes or dtypes.
SparseRows merge_rows(const SparseRows& a, const SparseRows& b);

}  // namespace frugal::ops
