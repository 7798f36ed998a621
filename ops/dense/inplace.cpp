#include "ops/dense/inplace.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// Calls f(values, count) over blocks of a contiguous real tensor. bf16 becomes f32 and is
// rounded again.
template <class F>
void for_ranges(const Tensor& x, F f) {
  if (x.dtype() == DType::f64) {
    parallel_for(0, x.numel(), kCopyGrain,
                 [&](int64_t begin, int64_t end) { f(x.mut<double>() + begin, end - begin); });
    return;
  }
  for_f32_rows(x.numel(), 1, kCopyGrain, kCopyGrain, {&x}, {&x}, [&](const F32Rows& e) {
    if (e.in[0] != e.out[0]) std::copy_n(e.in[0], e.rows, e.out[0]);
    f(e.out[0], e.rows);
  });
}

}  // namespace

void accumulate_kernel(Cpu, const Tensor& into, const Tensor& term) {
  const auto add = []<class T>(const T* a, const T* b, T* sum, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) sum[i] = a[i] + b[i];
  };
  if (into.dtype() == DType::f64) {
    double* sum = into.mut<double>();
    return add(sum, term.data<double>(), sum, into.numel());
  }
  for_f32_rows(into.numel(), 1, kCopyGrain, kCopyGrain, {&into, &term}, {&into},
               [&](const F32Rows& e) { add(e.in[0], e.in[1], e.out[0], e.rows); });
}

void accumulate_row_kernel(Cpu, const Tensor& into, const Tensor& row) {
  const int64_t c = row.numel();
  if (into.numel() == 0) return;
  if (into.dtype() == DType::f64) {
    for (int64_t i = 0; i < into.numel(); ++i) into.mut<double>()[i] += row.data<double>()[i % c];
    return;
  }
  for_f32_rows(into.numel() / c, c, kCopyGrain / c + 1, kCopyGrain / c + 1, {&into}, {&into},
               [&](const F32Rows& e) {
                 const float* terms = row.data<float>();
                 for (int64_t i = 0; i < e.rows; ++i)
#pragma omp simd
                   for (int64_t k = 0; k < c; ++k)
                     e.out[0][i * c + k] = e.in[0][i * c + k] + terms[k];
               });
}

void scale_inplace_kernel(Cpu, const Tensor& x, double factor) {
  for_ranges(x, [&]<class T>(T* values, int64_t n) {
    for (int64_t i = 0; i < n; ++i) values[i] *= static_cast<T>(factor);
  });
}

void scale_inplace_kernel(Cpu, const Tensor& x, const Tensor& factor) {
  scale_inplace_kernel(Cpu{}, x, factor.item());
}

void clip_inplace_kernel(Cpu, const Tensor& x, double bound) {
  for_ranges(x, [&]<class T>(T* values, int64_t n) {
    const T hi = static_cast<T>(bound);
    for (int64_t i = 0; i < n; ++i)
      values[i] = values[i] > hi ? hi : (values[i] < -hi ? -hi : values[i]);
  });
}

void accumulate(const Tensor& into, const Tensor& term) {
  check_real("accumulate", "the sum", into);
  check_shape("accumulate", "the term", term, into.shape());
  check_same("accumulate", into, {&term});
  const Tensor dense = contiguous(term);
  dispatch(into.device(), [&](auto backend) { accumulate_kernel(backend, into, dense); });
  into.bump_version();
}

void accumulate_row(const Tensor& into, const Tensor& row) {
  check_real("accumulate_row", "the sum", into);
  check_shape("accumulate_row", "the row", row, {into.size(-1)});
  check_beside("accumulate_row", into, {&row});
  const Tensor dense = contiguous(row);
  dispatch(into.device(), [&](auto backend) { accumulate_row_kernel(backend, into, dense); });
  into.bump_version();
}

void scale_inplace(const Tensor& x, double factor) {
  check_real("scale", "x", x);
  dispatch(x.device(), [&](auto backend) { scale_inplace_kernel(backend, x, factor); });
  x.bump_version();
}

void scale_inplace(const Tensor& x, const Tensor& factor) {
  check_real("scale", "x", x);
  check_shape("scale", "the factor", factor, {});
  check_beside("scale", x, {&factor});
  dispatch(x.device(), [&](auto backend) { scale_inplace_kernel(backend, x, factor); });
  x.bump_version();
}

void clip_inplace(const Tensor& x, double bound) {
  check_real("clip", "x", x);
  dispatch(x.device(), [&](auto backend) { clip_inplace_kernel(backend, x, bound); });
  x.bump_version();
}

}  // namespace frugal::ops
