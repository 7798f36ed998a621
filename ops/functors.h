// The scalar functions behind the elementwise ops, written once for every backend. A unary op has
// f(x) and the gradient df(dy, s), where s is what the op saves: its input or its output.
#pragma once
#include <cmath>
#include <numbers>

#ifdef __CUDACC__
#define FRUGAL_HD __host__ __device__
#else
#define FRUGAL_HD
#endif

namespace frugal::ops::functors {

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
    return std::exp(x);
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
    return 1 / (1 + std::exp(-x));
  }
  template <class T>
  FRUGAL_HD T df(T dy, T y) const {
    return dy * y * (1 - y);
  }
};
struct Tanh {  // saves y
  template <class T>
  FRUGAL_HD T f(T x) const {
    return std::tanh(x);
  }
  template <class T>
  FRUGAL_HD T df(T dy, T y) const {
    return dy * (1 - y * y);
  }
};
struct GeluExact {  // saves x. Ref: Hendrycks & Gimpel 2016, equation 1
  template <class T>
  FRUGAL_HD T f(T x) const {
    return x / 2 * (1 + std::erf(x / static_cast<T>(std::numbers::sqrt2)));
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    const T cdf = (1 + std::erf(x / static_cast<T>(std::numbers::sqrt2))) / 2;
    const T pdf =
        std::exp(-x * x / 2) * static_cast<T>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return dy * (cdf + x * pdf);
  }
};
struct GeluTanh {  // saves x. Ref: Hendrycks & Gimpel 2016, section 2
  static constexpr double kScale = 0.7978845608028654;  // sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  template <class T>
  FRUGAL_HD T inner(T x) const {
    return static_cast<T>(kScale) * (x + static_cast<T>(kCubic) * x * x * x);
  }
  template <class T>
  FRUGAL_HD T f(T x) const {
    return x / 2 * (1 + std::tanh(inner(x)));
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    const T t = std::tanh(inner(x));
    const T slope = static_cast<T>(kScale) * (1 + 3 * static_cast<T>(kCubic) * x * x);
    return dy * ((1 + t) / 2 + x / 2 * (1 - t * t) * slope);
  }
};
struct Silu {  // saves x. Ref: Elfwing et al. 2017
  template <class T>
  FRUGAL_HD T f(T x) const {
    return x / (1 + std::exp(-x));
  }
  template <class T>
  FRUGAL_HD T df(T dy, T x) const {
    const T s = 1 / (1 + std::exp(-x));
    return dy * s * (1 + x * (1 - s));
  }
};

}  // namespace frugal::ops::functors
