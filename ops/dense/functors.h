// The list of elementwise ops: their scalar functions, written once for every backend. A unary op
// has f(x). Unless it is linear, it also has the gradient df(dy, s), where s is what the op saves:
// its input or its output. A smooth op that saves its input has the second and third derivatives
// d2f(x) and d3f(x), which correct the mean effect of noise in x.
#pragma once
#include "ops/options.h"
#include "ops/simd/scalar_math.h"

namespace frugal::ops {

namespace functors {

struct Add {
  template <class T>
  FRUGAL_HD T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  FRUGAL_HD T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  FRUGAL_HD T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <class T>
  FRUGAL_HD T operator()(T a, T b) const {
    return a / b;
  }
};

struct Neg {
  template <class T>
  FRUGAL_HD T f(T x) const {
    return -x;
  }
};
struct Exp {  // saves y
  template <class T>
  FRUGAL_HD T f(T x) const {
    return math::exp(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T y) const {
    return dy * y;
  }
};
struct Log {  // saves x
  template <class T>
  FRUGAL_HD T f(T x) const {
    return std::log(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    return dy / x;
  }
};
struct Sqrt {  // saves y
  template <class T>
  FRUGAL_HD T f(T x) const {
    return std::sqrt(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T y) const {
    return dy / (2 * y);
  }
};
struct Sigmoid {  // saves y
  template <class T>
  FRUGAL_HD T f(T x) const {
    return 1 / (1 + math::exp(-x));
  }
  template <class T>
  FRUGAL_HD T df(T dy, T y) const {
    return dy * y * (1 - y);
  }
};
struct Tanh {  // saves y
  template <class T>
  FRUGAL_HD T f(T x) const {
    return math::tanh(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T y) const {
    return dy * (1 - y * y);
  }
};
struct GeluExact {  // saves x. Ref: Hendrycks & Gimpel 2016, equation 1
  template <class T>
  FRUGAL_HD T density(T x) const {
    constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // 1 / sqrt(2 pi)
    return math::bell(x) * static_cast<T>(kDensity);
  }
  template <class T>
  FRUGAL_HD T f(T x) const {
    return x * math::normal_cdf(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    return dy * (math::normal_cdf(x) + x * density(x));
  }
  template <class T>
  FRUGAL_HD T d2f(T x) const {
    return density(x) * (2 - x * x);
  }
  template <class T>
  FRUGAL_HD T d3f(T x) const {
    return density(x) * x * (x * x - 4);
  }
};
struct GeluTanh {  // saves x. Ref: Hendrycks & Gimpel 2016, section 2
  static constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  template <class T>
  FRUGAL_HD T inner(T x) const {
    return static_cast<T>(kScale) * (x + static_cast<T>(kCubic) * x * x * x);
  }
  template <class T>  // (1 + tanh(inner)) / 2
  FRUGAL_HD T gate(T x) const {
    return 1 / (1 + math::exp(-2 * inner(x)));
  }
  template <class T>
  FRUGAL_HD T f(T x) const {
    return x * gate(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    const T s = gate(x);
    const T slope = static_cast<T>(2 * kScale) * (1 + 3 * static_cast<T>(kCubic) * x * x);
    return dy * (s + x * s * (1 - s) * slope);
  }
  template <class T>  // the derivatives of the exact form, which are close enough for a correction
  FRUGAL_HD T d2f(T x) const {
    return GeluExact{}.d2f(x);
  }
  template <class T>
  FRUGAL_HD T d3f(T x) const {
    return GeluExact{}.d3f(x);
  }
};
struct Silu {  // saves x. Ref: Elfwing et al. 2017
  template <class T>
  FRUGAL_HD T f(T x) const {
    return x / (1 + math::exp(-x));
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    const T s = 1 / (1 + math::exp(-x));
    return dy * s * (1 + x * (1 - s));
  }
  template <class T>
  FRUGAL_HD T d2f(T x) const {
    const T s = 1 / (1 + math::exp(-x));
    return s * (1 - s) * (2 + x * (1 - 2 * s));
  }
  template <class T>
  FRUGAL_HD T d3f(T x) const {
    const T s = 1 / (1 + math::exp(-x));
    return s * (1 - s) * (3 * (1 - 2 * s) + x * (1 - 6 * s * (1 - s)));
  }
};

}  // namespace functors

template <class F>
inline constexpr bool is_smooth = requires(F f) {
  f.d3f(0.0f);
};

// The estimate that unary_estimate() describes.
template <class F, class T>
FRUGAL_HD T estimate(F f, T x, T variance) {
  return f.f(x) - f.d2f(x) * variance / 2;
}
template <class F, class T>
FRUGAL_HD T backward_estimate(F f, T dy, T x, T variance) {
  return f.df(dy, x) - dy * f.d3f(x) * variance / 2;
}

// Calls f with the functor behind `op`.
template <class F>
void with_binary(Binary op, F&& f) {
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

template <class F>
void with_unary(Unary op, F&& f) {
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

}  // namespace frugal::ops
