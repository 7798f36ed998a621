// Kernels that choose a function of one element themselves.
#pragma once
#include "ops/dense/functors.h"

namespace frugal::ops::cuda {

// Calls f with the functor behind `op`. REQUIRES: has_estimate(op), see ops/dense/elementwise.h.
template <class F>
__device__ __forceinline__ void with_smooth(Unary op, const F& f) {
  if (op == Unary::gelu_exact)
    f(functors::GeluExact{});
  else if (op == Unary::gelu_tanh)
    f(functors::GeluTanh{});
  else
    f(functors::Silu{});
}

}  // namespace frugal::ops::cuda
