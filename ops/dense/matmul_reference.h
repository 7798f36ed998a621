// Matrix products in f64, through Eigen: the reference, independent of oneDNN. Internal to ops.
#pragma once
#include <cstdint>

namespace frugal::ops {

// A matrix in memory: its rows (or, if `transposed`, its columns) lie `stride` elements apart.
template <class T>
struct MatrixView {
  T* data;
  int64_t rows, cols;
  bool transposed;
  int64_t stride;
};

// c [M, N] += a [M, K] b [K, N]. REQUIRES: c is not transposed, extents of at least 1. The order of
// additions depends on the shapes alone, so the bits depend neither on threads nor on the sizes of
// a processor's caches.
void add_product(const MatrixView<double>& c, const MatrixView<const double>& a,
                 const MatrixView<const double>& b);

}  // namespace frugal::ops
