// SparseRows: a table most of whose rows are 0, stored as the other rows: the gradient of an
// embedding. On the CPU and on `meta`.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

struct SparseRows {
  Tensor ids;        // [n] i64, ascending, without duplicates
  Tensor rows;       // [n, H], f32 or f64; row i is row ids[i] of the table
  int64_t size = 0;  // rows of the table
  bool defined() const { return rows.defined(); }
  Shape shape() const { return {size, rows.size(1)}; }
};

// Adds the rows [begin, begin + m) of the table to out [m, H], which is contiguous. REQUIRES: begin
// + m is at most size.
void add_rows(const Tensor& out, const SparseRows& sparse, int64_t begin = 0);
// The sum of two tables. The bits are those of the sum of the whole tables.  Errors: other shapes
// or dtypes.
SparseRows merge_rows(const SparseRows& a, const SparseRows& b);

}  // namespace frugal::ops
