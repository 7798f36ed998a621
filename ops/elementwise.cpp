#include "ops/elementwise.h"

#include <algorithm>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/copy.h"
#include "ops/dtype_switch.h"
#include "ops/reduce.h"

namespace frugal::ops {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements
constexpr const char* kBinaryNames[] = {"add", "sub", "mul", "div"};

template <class F>
void with_binary(Binary op, F f) {
  switch (op) {
    case Binary::add:
      return f(functors::Add{});
    case Binary::sub:
      return f(functors::Sub{});
    case Binary::mul:
      return f(functors::Mul{});
    case Binary::div:
      return f(functors::Div{});
  }
}

// Ops with a gradient from something saved; neg is linear and has none.
template <class F>
void with_unary(Unary op, F f) {
  switch (op) {
    case Unary::neg:
      return f(functors::Neg{});
    case Unary::exp:
      return f(functors::Exp{});
    case Unary::log:
      return f(functors::Log{});
    case Unary::sqrt:
      return f(functors::Sqrt{});
    case Unary::sigmoid:
      return f(functors::Sigmoid{});
    case Unary::tanh:
      return f(functors::Tanh{});
    case Unary::gelu_exact:
      return f(functors::GeluExact{});
    case Unary::gelu_tanh:
      return f(functors::GeluTanh{});
    case Unary::silu:
      return f(functors::Silu{});
  }
}

// The element offset of row `row` (all axes but the last) of a view.
int64_t row_offset(const Tensor& t, int64_t row) {
  int64_t offset = 0;
  for (int axis = t.dim() - 2; axis >= 0; --axis) {
    offset += row % t.shape()[axis] * t.strides()[axis];
    row /= t.shape()[axis];
  }
  return offset;
}

template <class T, class F>
void flat(const T* __restrict a, const T* __restrict b, T* __restrict y, int64_t n, F f) {
  parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = f(a[i], b[i]);
  });
}

// a and b expanded to y's shape.
template <class T, class F>
void by_rows(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  const int64_t width = y.dim() == 0 ? 1 : y.shape().back();
  const int64_t a_step = y.dim() == 0 ? 0 : a.strides().back();
  const int64_t b_step = y.dim() == 0 ? 0 : b.strides().back();
  parallel_for(0, y.numel() / width, kGrain / width + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T* pa = a.data<T>() + row_offset(a, row);
      const T* pb = b.data<T>() + row_offset(b, row);
      T* __restrict py = y.mut<T>() + row * width;
      if (a_step == 1 && b_step == 1) {
        for (int64_t i = 0; i < width; ++i) py[i] = f(pa[i], pb[i]);
      } else if (a_step == 1 && b_step == 0) {
        for (int64_t i = 0; i < width; ++i) py[i] = f(pa[i], *pb);
      } else {
        for (int64_t i = 0; i < width; ++i) py[i] = f(pa[i * a_step], pb[i * b_step]);
      }
    }
  });
}

}  // namespace

void binary_kernel(Cpu, Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  if (y.numel() == 0) return;
  with_real(y.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_binary(op, [&](auto f) {
      if (a.is_contiguous() && b.is_contiguous() && a.shape() == b.shape())
        flat(a.data<T>(), b.data<T>(), y.mut<T>(), y.numel(), f);
      else
        by_rows<T>(expand(a, y.shape()), expand(b, y.shape()), y, f);
    });
  });
}

void affine_kernel(Cpu, const Tensor& x, double factor, double term, const Tensor& y) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* __restrict px = x.data<T>();
    T* __restrict py = y.mut<T>();
    const T f = static_cast<T>(factor), t = static_cast<T>(term);
    parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) py[i] = px[i] * f + t;
    });
  });
}

void unary_kernel(Cpu, Unary op, const Tensor& x, const Tensor& y) {
  with_real(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_unary(op, [&](auto f) {
      const T* __restrict px = x.data<T>();
      T* __restrict py = y.mut<T>();
      parallel_for(0, x.numel(), kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) py[i] = f.f(px[i]);
      });
    });
  });
}

void unary_backward_kernel(Cpu, Unary op, const Tensor& dy, const Tensor& saved, const Tensor& dx) {
  with_real(dy.dtype(), [&](auto zero) {
    using T = decltype(zero);
    with_unary(op, [&](auto f) {
      if constexpr (requires { f.df(T{}, T{}); })
        flat(dy.data<T>(), saved.data<T>(), dx.mut<T>(), dy.numel(),
             [f](T g, T s) { return f.df(g, s); });
    });
  });
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  const char* name = kBinaryNames[static_cast<size_t>(op)];
  check_real(name, "a", a);
  check_real(name, "b", b);
  check_same(name, a, {&b});
  Tensor y = Tensor::empty(broadcast_shape(name, a.shape(), b.shape()), a.dtype(), a.device());
  dispatch(a.device(), [&](auto backend) { binary_kernel(backend, op, a, b, y); });
  return y;
}

Tensor affine(const Tensor& x, double factor, double term) {
  check_real("scale", "x", x);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { affine_kernel(backend, in, factor, term, y); });
  return y;
}

const char* name_of(Unary op) {
  constexpr const char* names[] = {"neg",  "exp",  "log",  "sqrt", "sigmoid",
                                   "tanh", "gelu", "gelu", "silu"};
  return names[static_cast<size_t>(op)];
}

Tensor unary(Unary op, const Tensor& x) {
  check_real(name_of(op), "x", x);
  const Tensor in = contiguous(x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) { unary_kernel(backend, op, in, y); });
  return y;
}

Tensor unary_backward(Unary op, const Tensor& dy, const Tensor& saved) {
  FRUGAL_ASSERT(op != Unary::neg);
  check_shape(name_of(op), "dy", dy, saved.shape());
  check_same(name_of(op), dy, {&saved});
  const Tensor gradient = contiguous(dy), kept = contiguous(saved);
  Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  dispatch(dy.device(),
           [&](auto backend) { unary_backward_kernel(backend, op, gradient, kept, dx); });
  return dx;
}

}  // namespace frugal::ops
