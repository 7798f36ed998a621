#include "ops/dense/softmax.h"

#include <algorithm>
#include <cmath>

#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/softmax_loops.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

using simd::softmax_backward_rows;
using simd::softmax_rows;

// Calls f(F32Rows) over the rows of f32 or bf16 tensors, along their last axis, in parallel.
template <class F>
void for_rows(std::initializer_list<const Tensor*> in, const Tensor& out, F f) {
  if (out.numel() == 0) return;
  const int64_t width = out.shape().back(), grain = rows_at_once(kExponentialGrain, width);
  for_f32_rows(out.numel() / width, width, grain, grain, in, {&out}, f);
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
  if (x.numel() == 0) return;
  const int64_t width = x.shape().back();
  if (x.dtype() == DType::f64)
    return softmax_rows(x.data<double>(), y.mut<double>(), x.numel() / width, width, log);
  for_rows({&x}, y, [&](const F32Rows& r) { softmax_rows(r.in[0], r.out[0], r.rows, width, log); });
}

void softmax_backward_kernel(Cpu, const Tensor& dy, const Tensor& y, const Tensor& dx, bool log) {
  if (y.numel() == 0) return;
  const int64_t width = y.shape().back();
  if (y.dtype() == DType::f64)
    return softmax_backward_rows(dy.data<double>(), y.data<double>(), dx.mut<double>(),
                                 y.numel() / width, width, log);
  for_rows({&dy, &y}, dx, [&](const F32Rows& r) {
    softmax_backward_rows(r.in[0], r.in[1], r.out[0], r.rows, width, log);
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
