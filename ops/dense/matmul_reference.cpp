#include "ops/dense/matmul_reference.h"

#include <Eigen/Core>

namespace frugal::ops {
namespace {

template <int Order>
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Order>;
template <class M>
using View = Eigen::Map<M, Eigen::Unaligned, Eigen::OuterStride<>>;

template <class F>
void with_matrix(const MatrixView<const double>& x, const F& f) {
  const Eigen::OuterStride<> stride(x.stride);
  if (x.transposed)
    f(View<const Matrix<Eigen::ColMajor>>(x.data, x.rows, x.cols, stride));
  else
    f(View<const Matrix<Eigen::RowMajor>>(x.data, x.rows, x.cols, stride));
}

// Eigen cuts long sums where the caches suggest, which would give other bits on other processors.
[[maybe_unused]] const bool kSameCaches = [] {
  Eigen::setCpuCacheSizes(32 << 10, 512 << 10, 8 << 20);
  return true;
}();

}  // namespace

void add_product(const MatrixView<double>& c, const MatrixView<const double>& a,
                 const MatrixView<const double>& b) {
  View<Matrix<Eigen::RowMajor>> out(c.data, c.rows, c.cols, Eigen::OuterStride<>(c.stride));
  with_matrix(a, [&](const auto& left) {
    with_matrix(b, [&](const auto& right) { out.noalias() += left * right; });
  });
}

}  // namespace frugal::ops
