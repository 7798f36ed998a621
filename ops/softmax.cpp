#include "ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/dtype_switch.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = 1 << 12;  // elements; each costs an exponential

// Calls f(row) for every row of `t` along its last axis, in parallel.
template <class F>
void for_rows(const Tensor& t, F&& f) {
  if (t.numel() == 0) return;
  const int64_t width = t.shape().back();
  parallel_for(0, t.numel() / width, std::max<int64_t>(1, kGrain / width),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) f(row);
               });
}

template <class T>
void softmax_row(const T* x, T* y, int64_t width, bool log) {
  T top = -std::numeric_limits<T>::infinity();
  for (int64_t c = 0; c < width; ++c) top = x[c] > top ? x[c] : top;
  double total = 0;
  for (int64_t c = 0; c < width; ++c) {
    const T e = std::exp(x[c] - top);  // NaN if all are -inf, and for +inf
    if (!log) y[c] = e;
    total += static_cast<double>(e);
  }
  if (log) {
    const T shift = static_cast<T>(std::log(total));
    for (int64_t c = 0; c < width; ++c) y[c] = x[c] - top - shift;
  } else {
    const T factor = static_cast<T>(1 / total);
    for (int64_t c = 0; c < width; ++c) y[c] *= factor;
  }
}

template <class T>
void softmax_backward_row(const T* dy, const T* y, T* dx, int64_t width, bool log) {
  double total = 0;
  for (int64_t c = 0; c < width; ++c)
    total += static_cast<double>(dy[c]) * (log ? 1.0 : static_cast<double>(y[c]));
  const T shift = static_cast<T>(total);
  for (int64_t c = 0; c < width; ++c)
    dx[c] = log ? dy[c] - std::exp(y[c]) * shift : y[c] * (dy[c] - shift);
}

// Any axis becomes the last one, so that there is one kernel.
Tensor last(const Tensor& x, int axis) { return contiguous(x.transpose(axis, -1)); }

Tensor forward(const char* op, const Tensor& x, int axis, bool log) {
  check_real(op, "x", x);
  axis = normalize_axis(op, axis, x.dim());
  if (axis != x.dim() - 1) {
    const Tensor y = forward(op, last(x, axis), -1, log);
    return contiguous(y.transpose(axis, -1));
  }
  const Tensor from = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { softmax_kernel(backend, from, y, log); });
  return y;
}

Tensor backward(const char* op, const Tensor& dy, const Tensor& y, int axis, bool log) {
  check_real(op, "y", y);
  check_shape(op, "dy", dy, y.shape());
  check_same(op, y, {&dy});
  axis = normalize_axis(op, axis, y.dim());
  if (axis != y.dim() - 1) {
    const Tensor dx = backward(op, last(dy, axis), last(y, axis), -1, log);
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
    const int64_t width = x.shape().back();
    const T* from = x.data<T>();
    T* to = y.mut<T>();
    for_rows(x,
             [&](int64_t row) { softmax_row(from + row * width, to + row * width, width, log); });
  });
}

void softmax_backward_kernel(Cpu, const Tensor& dy, const Tensor& y, const Tensor& dx, bool log) {
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t width = y.shape().back();
    const T* gradient = dy.data<T>();
    const T* output = y.data<T>();
    T* to = dx.mut<T>();
    for_rows(y, [&](int64_t row) {
      const int64_t at = row * width;
      softmax_backward_row(gradient + at, output + at, to + at, width, log);
    });
  });
}

Tensor softmax(const Tensor& x, int axis) { return forward("softmax", x, axis, false); }
Tensor log_softmax(const Tensor& x, int axis) { return forward("log_softmax", x, axis, true); }

Tensor softmax_backward(const Tensor& dy, const Tensor& y, int axis) {
  return backward("softmax_backward", dy, y, axis, false);
}
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int axis) {
  return backward("log_softmax_backward", dy, y, axis, true);
}

}  // namespace frugal::ops
