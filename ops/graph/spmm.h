// Sparse matrix times dense matrix, and means and maxima over the entries of a row. x [cols, F] ->
// [rows, F]; f32 and bf16 (SIMD, sums in f32), f64 (plain loops). Work is split by
// entries, so a row that holds most entries does not keep one thread busy alone. Sums have the same
// bits for every number of threads.
#pragma once
#include "core/rng.h"
#include "ops/graph/graph.h"

namespace frugal::ops {

struct SpmmOptions {
  Tensor value = {};  // [entries] f32, used instead of the matrix's own values; undefined: its own
                      // values
  // Row means: each sum is divided by its number of entries. `entry_counts` [cols + 1]: entry (r,
  // c) is divided by entry_counts[c + 1] - entry_counts[c], which is the transpose of row means.
  bool mean = false;
  Tensor entry_counts = {};
  double factor = 1;
  Tensor bias = {};    // [F]; f32 beside a bf16 x
  Tensor addend = {};  // [rows, F]
  double addend_factor = 1;
};

// y = factor A x + addend_factor addend + bias. A row without entries has the sum 0.
// Errors: extents or dtypes that differ; a matrix on another device than x.
Tensor spmm(const Csr& a, const Tensor& x, const SpmmOptions& options = {});
// Writes y, with the same bits, over x, in strips of columns: beside x there is never more than the
// copy of a strip. x is contiguous, and its version rises.
// Errors: those of spmm(); a matrix that is not square.
void spmm_over(const Csr& a, const Tensor& x, const SpmmOptions& options = {});
// On the CPU, the rows of y and of the addend may lie apart, equally far, unless they are f64.
void spmm_kernel(Cpu, const Csr& a, const Tensor& x, const SpmmOptions& options, const Tensor& y);
void spmm_kernel(Cuda, const Csr& a, const Tensor& x, const SpmmOptions& options, const Tensor& y);

// y[r, f] = max over the entries of row r of x[col, f]; the values of the matrix are ignored. NaN
// counts as larger than everything. A row without entries is 0. The index says which entry of the
// row was the first to have the maximum: u8 if the longest row allows it, else i32.
struct RowMax {
  Tensor y, index;  // [rows, F]
};
RowMax spmm_max(const Csr& a, const Tensor& x);
void spmm_max_kernel(Cpu, const Csr& a, const Tensor& x, const Tensor& y, const Tensor& index);
void spmm_max_kernel(Cuda, const Csr& a, const Tensor& x, const Tensor& y, const Tensor& index);
// dy, index [rows, F] -> dx [cols, F].
Tensor spmm_max_backward(const SparseMatrix& a, const Tensor& dy, const Tensor& index);
void spmm_max_backward_kernel(Cpu, const SparseMatrix& a, const Tensor& dy, const Tensor& index,
                              const Tensor& dx);
void spmm_max_backward_kernel(Cuda, const SparseMatrix& a, const Tensor& dy, const Tensor& index,
                              const Tensor& dx);

// x [rows, F] sparse, weight [O, F], bias [O] or undefined -> x weight^T + bias [rows, O]. No dense
// x is made. value: as in SpmmOptions.  Errors: extents that differ.
Tensor sparse_linear(const SparseMatrix& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& value = {});
Tensor sparse_linear_backward_weight(const SparseMatrix& x, const Tensor& dy,
                                     const Tensor& value = {});  // [O, F]

// Dropout of the entries of a: the result is value[e] / (1 - p) where uniform(key, e) >= p, else 0;
// an undefined value counts as ones. [entries] f32, `workspace`.
Tensor dropout_entries(const Csr& a, double p, RngKey key);
// value [entries] f32 or undefined -> out [entries].
void dropout_entries_kernel(Cpu, const Tensor& value, double p, RngKey key, const Tensor& out);
void dropout_entries_kernel(Cuda, const Tensor& value, double p, RngKey key, const Tensor& out);
// out[e] = value[position[e]], f32: the values in the order of the transpose.
void transpose_entries_kernel(Cpu, const Tensor& value, const Tensor& position, const Tensor& out);
void transpose_entries_kernel(Cuda, const Tensor& value, const Tensor& position, const Tensor& out);

}  // namespace frugal::ops
