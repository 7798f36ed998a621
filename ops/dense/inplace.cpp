#include "ops/dense/inplace.h"

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// Calls f(values, begin, end) over ranges of a contiguous real tensor.
template <class F>
void for_ranges(const Tensor& x, F f) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    T* values = x.mut<T>();
    parallel_for(0, x.numel(), kCopyGrain,
                 [&](int64_t begin, int64_t end) { f(values, begin, end); });
  });
}

}  // namespace

void accumulate_kernel(Cpu, const Tensor& into, const Tensor& term) {
  for_ranges(into, [&]<class T>(T* __restrict sum, int64_t begin, int64_t end) {
    const T* __restrict terms = term.data<T>();
    for (int64_t i = begin; i < end; ++i) sum[i] += terms[i];
  });
}

void accumulate_row_kernel(Cpu, const Tensor& into, const Tensor& row) {
  const int64_t c = row.numel();
  if (into.numel() == 0) return;
  with_real(into.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* __restrict terms = row.data<T>();
    parallel_for(0, into.numel() / c, kCopyGrain / c + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* __restrict sum = into.mut<T>() + i * c;
        for (int64_t k = 0; k < c; ++k) sum[k] += terms[k];
      }
    });
  });
}

void scale_inplace_kernel(Cpu, const Tensor& x, double factor) {
  for_ranges(x, [&]<class T>(T* values, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[i] *= static_cast<T>(factor);
  });
}

void scale_inplace_kernel(Cpu, const Tensor& x, const Tensor& factor) {
  scale_inplace_kernel(Cpu{}, x, factor.item());
}

void clip_inplace_kernel(Cpu, const Tensor& x, double bound) {
  for_ranges(x, [&]<class T>(T* values, int64_t begin, int64_t end) {
    const T hi = static_cast<T>(bound);
    for (int64_t i = begin; i < end; ++i)
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
