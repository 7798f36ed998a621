#include "ops/dense/compare.h"

#include <algorithm>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/reduce.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

template <class T>
auto number(T value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>)
    return static_cast<float>(value);
  else
    return value;
}

// The element of a tensor of y's shape at a flat index of y.
int64_t position(const Tensor& x, int64_t flat) {
  int64_t at = 0;
  for (int axis = x.dim() - 1; axis >= 0; --axis) {
    at += flat % x.shape()[axis] * x.strides()[axis];
    flat /= x.shape()[axis];
  }
  return at;
}

}  // namespace

void compare_kernel(Cpu, Compare op, const Tensor& a, const Tensor& b, const Tensor& y) {
  const int64_t n = y.numel();
  if (n == 0) return;
  // Rows of the last axis, in which each operand has one stride; one row where both are contiguous.
  const bool flat = a.is_contiguous() && b.is_contiguous();
  const int last = y.dim() - 1;
  const int64_t cols = flat || last < 0 ? n : y.size(last);
  const int64_t step_a = flat || last < 0 ? 1 : a.strides()[last];
  const int64_t step_b = flat || last < 0 ? 1 : b.strides()[last];
  with_dtype(a.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T *pa = a.data<T>(), *pb = b.data<T>();
    bool* out = y.mut<bool>();
    parallel_for(0, n, kCopyGrain, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t first = flat ? 0 : begin / cols * cols, stop = std::min(end, first + cols);
        const T* row_a = pa + (flat ? 0 : position(a, first));
        const T* row_b = pb + (flat ? 0 : position(b, first));
        for (int64_t i = begin; i < stop; ++i)
          out[i] =
              holds(op, number(row_a[(i - first) * step_a]), number(row_b[(i - first) * step_b]));
        begin = stop;
      }
    });
  });
}

Tensor compare(Compare op, const Tensor& a, const Tensor& b) {
  check_defined("compare", "a", a);
  check_defined("compare", "b", b);
  check_same("compare", a, {&b});
  const Shape shape = broadcast_shape("compare", a.shape(), b.shape());
  const Tensor y = Tensor::empty(shape, DType::bool_, a.device());
  dispatch(y.device(), [&](auto backend) {
    compare_kernel(backend, op, expand(a, shape), expand(b, shape), y);
  });
  return y;
}

Tensor compare(Compare op, const Tensor& x, double value) {
  check_defined("compare", "x", x);
  return compare(op, x, Tensor::of(value, x.dtype(), x.device()));
}

}  // namespace frugal::ops
