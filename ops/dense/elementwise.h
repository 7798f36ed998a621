// Elementwise ops, f32 (SIMD) and f64 (plain loops). Binary ones broadcast by NumPy's rule. The
// list of ops and their formulas: ops/dense/functors.h.
#pragma once
#include "core/tensor.h"
#include "ops/dense/functors.h"
#include "ops/options.h"

namespace frugal::ops {

// a op b, of the broadcast shape.  Errors: dtypes, devices or shapes that do not go together.
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

// dx from dy and what the op saved: y for exp, sqrt, sigmoid, tanh; x for log, gelu, silu.
Tensor unary_backward(Unary op, const Tensor& dy, const Tensor& saved);
void unary_backward_kernel(Cpu, Unary op, const Tensor& dy, const Tensor& saved, const Tensor& dx);
void unary_backward_kernel(Cuda, Unary op, const Tensor& dy, const Tensor& saved, const Tensor& dx);

// f and its gradient at a value of which x is an unbiased estimate with this variance, to second
// order in its error: f(x) - d2f(x) variance / 2, and dy (df(x) - d3f(x) variance / 2). For gelu
// and silu. REQUIRES: `variance` like x.
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

}  // namespace frugal::ops
