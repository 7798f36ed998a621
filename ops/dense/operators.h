// + - * / and comparison of tensors, with numbers on either side. Shapes broadcast by NumPy's rule.
//
// Arithmetic takes what ops/dense/elementwise.h takes (f32, bf16 and f64, which CUDA has not) and
// gives the same dtype. x / number multiplies by 1 / number. Comparison takes every dtype and gives
// bool: see ops/dense/compare.h. There is no += or -=: they would suggest an update in place.
//
// Errors: dtypes, devices or shapes that do not go together.
#pragma once
#include "ops/dense/compare.h"
#include "ops/dense/elementwise.h"

namespace frugal {

inline Tensor operator+(const Tensor& a, const Tensor& b) { return ops::add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return ops::sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return ops::mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return ops::div(a, b); }

inline Tensor operator-(const Tensor& x) { return ops::affine(x, -1, 0); }
inline Tensor operator+(const Tensor& x, double term) { return ops::affine(x, 1, term); }
inline Tensor operator+(double term, const Tensor& x) { return ops::affine(x, 1, term); }
inline Tensor operator-(const Tensor& x, double term) { return ops::affine(x, 1, -term); }
inline Tensor operator-(double term, const Tensor& x) { return ops::affine(x, -1, term); }
inline Tensor operator*(const Tensor& x, double factor) { return ops::affine(x, factor, 0); }
inline Tensor operator*(double factor, const Tensor& x) { return ops::affine(x, factor, 0); }
inline Tensor operator/(const Tensor& x, double divisor) { return ops::affine(x, 1 / divisor, 0); }
inline Tensor operator/(double dividend, const Tensor& x) {
  return ops::div(Tensor::full({}, dividend, x.dtype(), x.device()), x);
}

inline Tensor operator==(const Tensor& a, const Tensor& b) {
  return ops::compare(ops::Compare::eq, a, b);
}
inline Tensor operator==(const Tensor& x, double value) {
  return ops::compare(ops::Compare::eq, x, value);
}
inline Tensor operator==(double value, const Tensor& x) {
  return ops::compare(ops::Compare::eq, x, value);
}
inline Tensor operator!=(const Tensor& a, const Tensor& b) {
  return ops::compare(ops::Compare::ne, a, b);
}
inline Tensor operator!=(const Tensor& x, double value) {
  return ops::compare(ops::Compare::ne, x, value);
}
inline Tensor operator!=(double value, const Tensor& x) {
  return ops::compare(ops::Compare::ne, x, value);
}
inline Tensor operator<(const Tensor& a, const Tensor& b) {
  return ops::compare(ops::Compare::lt, a, b);
}
inline Tensor operator<(const Tensor& x, double value) {
  return ops::compare(ops::Compare::lt, x, value);
}
inline Tensor operator<(double value, const Tensor& x) {
  return ops::compare(ops::Compare::gt, x, value);
}
inline Tensor operator<=(const Tensor& a, const Tensor& b) {
  return ops::compare(ops::Compare::le, a, b);
}
inline Tensor operator<=(const Tensor& x, double value) {
  return ops::compare(ops::Compare::le, x, value);
}
inline Tensor operator<=(double value, const Tensor& x) {
  return ops::compare(ops::Compare::ge, x, value);
}
inline Tensor operator>(const Tensor& a, const Tensor& b) {
  return ops::compare(ops::Compare::gt, a, b);
}
inline Tensor operator>(const Tensor& x, double value) {
  return ops::compare(ops::Compare::gt, x, value);
}
inline Tensor operator>(double value, const Tensor& x) {
  return ops::compare(ops::Compare::lt, x, value);
}
inline Tensor operator>=(const Tensor& a, const Tensor& b) {
  return ops::compare(ops::Compare::ge, a, b);
}
inline Tensor operator>=(const Tensor& x, double value) {
  return ops::compare(ops::Compare::ge, x, value);
}
inline Tensor operator>=(double value, const Tensor& x) {
  return ops::compare(ops::Compare::le, x, value);
}

}  // namespace frugal
