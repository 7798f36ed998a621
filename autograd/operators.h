// + - * / of variables, with numbers and tensors on either side, and indexing. All are
// differentiable and go through autograd/functions.h, which says what each function saves. A tensor
// takes part as a constant. Comparison compares values and gives a tensor of bool
// (ops/dense/operators.h). There is no += or -=: they would suggest an update in place.
//
// Errors: dtypes, devices or shapes that do not go together.
#pragma once
#include <iosfwd>
#include <string>

#include "autograd/functions.h"
#include "core/print.h"
#include "ops/dense/operators.h"

namespace frugal {

inline Variable operator+(const Variable& a, const Variable& b) { return add(a, b); }
inline Variable operator+(const Variable& a, const Tensor& b) { return add(a, Variable(b)); }
inline Variable operator+(const Tensor& a, const Variable& b) { return add(Variable(a), b); }
inline Variable operator-(const Variable& a, const Variable& b) { return sub(a, b); }
inline Variable operator-(const Variable& a, const Tensor& b) { return sub(a, Variable(b)); }
inline Variable operator-(const Tensor& a, const Variable& b) { return sub(Variable(a), b); }
inline Variable operator*(const Variable& a, const Variable& b) { return mul(a, b); }
inline Variable operator*(const Variable& a, const Tensor& b) { return mul(a, Variable(b)); }
inline Variable operator*(const Tensor& a, const Variable& b) { return mul(Variable(a), b); }
inline Variable operator/(const Variable& a, const Variable& b) { return div(a, b); }
inline Variable operator/(const Variable& a, const Tensor& b) { return div(a, Variable(b)); }
inline Variable operator/(const Tensor& a, const Variable& b) { return div(Variable(a), b); }

inline Variable operator-(const Variable& x) { return neg(x); }
inline Variable operator+(const Variable& x, double term) { return add_scalar(x, term); }
inline Variable operator+(double term, const Variable& x) { return add_scalar(x, term); }
inline Variable operator-(const Variable& x, double term) { return add_scalar(x, -term); }
inline Variable operator-(double term, const Variable& x) { return add_scalar(neg(x), term); }
inline Variable operator*(const Variable& x, double factor) { return scale(x, factor); }
inline Variable operator*(double factor, const Variable& x) { return scale(x, factor); }
inline Variable operator/(const Variable& x, double divisor) { return scale(x, 1 / divisor); }
inline Variable operator/(double dividend, const Variable& x) {
  return div(Variable::constant(Tensor::full({}, dividend, x.dtype(), x.device())), x);
}

inline Tensor operator==(const Variable& a, const Variable& b) { return a.value() == b.value(); }
inline Tensor operator==(const Variable& a, const Tensor& b) { return a.value() == b; }
inline Tensor operator==(const Tensor& a, const Variable& b) { return a == b.value(); }
inline Tensor operator==(const Variable& x, double value) { return x.value() == value; }
inline Tensor operator==(double value, const Variable& x) { return value == x.value(); }
inline Tensor operator!=(const Variable& a, const Variable& b) { return a.value() != b.value(); }
inline Tensor operator!=(const Variable& a, const Tensor& b) { return a.value() != b; }
inline Tensor operator!=(const Tensor& a, const Variable& b) { return a != b.value(); }
inline Tensor operator!=(const Variable& x, double value) { return x.value() != value; }
inline Tensor operator!=(double value, const Variable& x) { return value != x.value(); }
inline Tensor operator<(const Variable& a, const Variable& b) { return a.value() < b.value(); }
inline Tensor operator<(const Variable& a, const Tensor& b) { return a.value() < b; }
inline Tensor operator<(const Tensor& a, const Variable& b) { return a < b.value(); }
inline Tensor operator<(const Variable& x, double value) { return x.value() < value; }
inline Tensor operator<(double value, const Variable& x) { return value < x.value(); }
inline Tensor operator<=(const Variable& a, const Variable& b) { return a.value() <= b.value(); }
inline Tensor operator<=(const Variable& a, const Tensor& b) { return a.value() <= b; }
inline Tensor operator<=(const Tensor& a, const Variable& b) { return a <= b.value(); }
inline Tensor operator<=(const Variable& x, double value) { return x.value() <= value; }
inline Tensor operator<=(double value, const Variable& x) { return value <= x.value(); }
inline Tensor operator>(const Variable& a, const Variable& b) { return a.value() > b.value(); }
inline Tensor operator>(const Variable& a, const Tensor& b) { return a.value() > b; }
inline Tensor operator>(const Tensor& a, const Variable& b) { return a > b.value(); }
inline Tensor operator>(const Variable& x, double value) { return x.value() > value; }
inline Tensor operator>(double value, const Variable& x) { return value > x.value(); }
inline Tensor operator>=(const Variable& a, const Variable& b) { return a.value() >= b.value(); }
inline Tensor operator>=(const Variable& a, const Tensor& b) { return a.value() >= b; }
inline Tensor operator>=(const Tensor& a, const Variable& b) { return a >= b.value(); }
inline Tensor operator>=(const Variable& x, double value) { return x.value() >= value; }
inline Tensor operator>=(double value, const Variable& x) { return value >= x.value(); }

// x at one index of an axis, which goes. A negative index counts from the end. x[i] is
// select(x, 0, i). Saves: nothing.  Errors: no such axis or index.
Variable select(const Variable& x, int axis, int64_t index);

// The value as core/print.h prints it, and who made it: "[2, 2] f32 on cpu, by add".
std::string to_string(const Variable& x, const PrintOptions& options = {});
std::ostream& operator<<(std::ostream& out, const Variable& x);

}  // namespace frugal

template <>
struct fmt::formatter<frugal::Variable> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const frugal::Variable& x, Context& context) const {
    return fmt::formatter<std::string>::format(frugal::to_string(x), context);
  }
};
