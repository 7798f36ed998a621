#include "ops/dense/softmax.h"

#include <algorithm>
#include <cmath>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/softmax_loops.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

using simd::softmax_backward_rows;
using simd::softmax_rows;

// Calls f(begin, end) over ranges of the rows of `t`, along its last axis, in parallel.
template <class F>
void for_rows(const Tensor& t, F&& f) {
  if (t.numel() == 0) return;
  const int64_t width = t.shape().back();
  parallel_for(0, t.numel() / width, rows_at_once(kExponentialGrain, width), f);
}

// f64 is the reference. For f32 see simd::softmax_rows.
void softmax_rows(const double* x, double* y, int64_t rows, int64_t width, bool log) {
  for (; rows-- > 0; x += width, y += width) {
    const double top = *std::max_element(x, x + width);
    double total = 0;
    for (int64_t c = 0; c < width; ++c) total += std::exp(x[c] - top);
    for (int64_t c = 0; c < width; ++c)
      y[c] = log ? x[c] - top - std::log(total) : std::exp(x[c] - top) / total;
  }
}

void softmax_backward_rows(const double* dy, const double* y, double* dx, int64_t rows,
                           int64_t width, bool log) {
  for (; rows-- > 0; dy += width, y += width, dx += width) {
    double total = 0;
    for (int64_t c = 0; c < width; ++c) total += log ? dy[c] : dy[c] * y[c];
    for (int64_t c = 0; c < width; ++c)
      dx[c] = log ? dy[c] - std::exp(y[c]) * total : y[c] * (dy[c] - total);
  }
}

// x with `axis` moved to the end and contiguous, so that one kernel serves all axes.
Tensor last(const Tensor& x, int axis) { return contiguous(x.transpose(axis, -1)); }

Tensor softmax_along(const char* op, const Tensor& x, int axis, bool log) {
  check_real(op, "x", x);
  axis = normalize_axis(op, axis, x.dim());
  if (axis != x.dim() - 1) {
    const Tensor y = softmax_along(op, last(x, axis), -1, log);
    return contiguous(y.transpose(axis, -1));
  }
  const Tensor from = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { softmax_kernel(backend, from, y, log); });
  return y;
}

Tensor softmax_backward_along(const char* op, const Tensor& dy, const Tensor& y, int axis,
                              bool log) {
  check_real(op, "y", y);
  check_shape(op, "dy", dy, y.shape());
  check_same(op, y, {&dy});
  axis = normalize_axis(op, axis, y.dim());
  if (axis != y.dim() - 1) {
    const Tensor dx = softmax_backward_along(op, last(dy, axis), last(y, axis), -1, log);
    return contiguous(dx.transpose(axis, -1));
  }
  const Tensor gradient = contiguous(dy), output = contiguous(y);
  Tensor dx = Tensor::empty(y.shape(), y.dtype(), y.device());
  dispatch(y.device(),
           [&](auto backend) { softmax_backward_kernel(backend, gradient, output, dx, log); });
  return dx;
}

}  // namespace

void softmax_kernel(Cpu, const Tensor& x, const Tensor& y, bool log) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_rows(x, [&](int64_t begin, int64_t end) {
      const int64_t width = x.shape().back(), at = begin * width;
      softmax_rows(x.data<T>() + at, y.mut<T>() + at, end - begin, width, log);
    });
  });
}

void softmax_backward_kernel(Cpu, const Tensor& dy, const Tensor& y, const Tensor& dx, bool log) {
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for_rows(y, [&](int64_t begin, int64_t end) {
      const int64_t width = y.shape().back(), at = begin * width;
      softmax_backward_rows(dy.data<T>() + at, y.data<T>() + at, dx.mut<T>() + at, end - begin,
                            width, log);
    });
  });
}

Tensor softmax(const Tensor& x, int axis) { return softmax_along("softmax", x, axis, false); }
Tensor log_softmax(const Tensor& x, int axis) {
  return softmax_along("log_softmax", x, axis, true);
}

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int axis) {
  return softmax_backward_along("softmax_backward", dy, y, axis, false);
}
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int axis) {
  return softmax_backward_along("log_softmax_backward", dy, y, axis, true);
}

}  // namespace frugal::ops
