// Elementwise ops, f32 (SIMD) and f64 (plain loops). Binary ops broadcast by NumPy's rule.
// ops/dense/functors.h lists the ops and their formulas.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

// a op b, with the shape to which both broadcast.  Errors: dtypes, devices or shapes that do not
// fit.
Tensor binary(Binary op, const Tensor& a, const Tensor& b);
void binary_kernel(Cpu, Binary op, const Tensor& a, const Tensor& b, const Tensor& y);
void binary_kernel(Cuda, Binary op, const Tensor& a, const Tensor& b, const Tensor& y);
inline Tensor add(const Tensor& a, const Tensor& b) { return binary(Binary::add, a, b); }
inline Tensor sub(const Tensor& a, const Tensor& b) { return binary(Binary::sub, a, b); }
inline Tensor mul(const Tensor& a, const Tensor& b) { return binary(Binary::mul, a, b); }
inline Tensor div(const Tensor& a, const Tensor& b) { return binary(Binary::div, a, b); }

// x * factor + term
Tensor affine(const Tensor& x, double factor, double term);
void affine_kernel(Cpu, const Tensor& x, double factor, double term, const Tensor& y);
void affine_kernel(Cuda, const Tensor& x, double factor, double term, const Tensor& y);

Tensor unary(Unary op, const Tensor& x);
void unary_kernel(Cpu, Unary op, const Tensor& x, const Tensor& y);
void unary_kernel(Cuda, Unary op, const Tensor& x, const Tensor& y);

// dx from dy and the tensor that the op saved: y for exp, sqrt, sigmoid and tanh; x for log, gelu
// and silu.
Tensor unary_backward(Unary op, const Tensor& dy, const Tensor& saved);
void unary_backward_kernel(Cpu, Unary op, const Tensor& dy, const Tensor& saved, const Tensor& dx);
void unary_backward_kernel(Cuda, Unary op, const Tensor& dy, const Tensor& saved, const Tensor& dx);

// An estimate of f for gelu and silu where x is an unbiased estimate of the true input and has this
// variance. It removes the mean error to second order: f(x) - d2f(x) variance / 2. The backward
// form is dy (df(x) - d3f(x) variance / 2). REQUIRES: `variance` has the shape and dtype of x.
Tensor unary_estimate(Unary op, const Tensor& x, const Tensor& variance);
bool has_estimate(Unary op);
void unary_estimate_kernel(Cpu, Unary op, const Tensor& x, const Tensor& variance, const Tensor& y);
void unary_estimate_kernel(Cuda, Unary op, const Tensor& x, const Tensor& variance,
                           const Tensor& y);
Tensor unary_backward_estimate(Unary op, const Tensor& dy, const Tensor& x, const Tensor& variance);
void unary_backward_estimate_kernel(Cpu, Unary op, const Tensor& dy, const Tensor& x,
                                    const Tensor& variance, const Tensor& dx);
void unary_backward_estimate_kernel(Cuda, Unary op, const Tensor& dy, const Tensor& x,
                                    const Tensor& variance, const Tensor& dx);

const char* name_of(Unary op);
Unary unary_of(Gelu kind);

}  // namespace frugal::ops
