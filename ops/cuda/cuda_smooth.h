// Kernels that choose a function of one element themselves.
#pragma once
#include "ops/dense/functors.h"

namespace frugal::ops::cuda {

template <class Functor, class F>
__device__ __forceinline__ void call_if_smooth(const Functor& functor, const F& f) {
  if constexpr (is_smooth<Functor>) f(functor);
}

// Calls f with the functor behind `op`. REQUIRES: has_estimate(op), see ops/dense/elementwise.h;
// else nothing is called. The switch has no default, so the compiler names an op that is missing.
template <class F>
__device__ __forceinline__ void with_smooth(Unary op, const F& f) {
  switch (op) {
    case Unary::neg:
      return call_if_smooth(functors::Neg{}, f);
    case Unary::exp:
      return call_if_smooth(functors::Exp{}, f);
    case Unary::log:
      return call_if_smooth(functors::Log{}, f);
    case Unary::sqrt:
      return call_if_smooth(functors::Sqrt{}, f);
    case Unary::sigmoid:
      return call_if_smooth(functors::Sigmoid{}, f);
    case Unary::tanh:
      return call_if_smooth(functors::Tanh{}, f);
    case Unary::gelu_exact:
      return call_if_smooth(functors::GeluExact{}, f);
    case Unary::gelu_tanh:
      return call_if_smooth(functors::GeluTanh{}, f);
    case Unary::silu:
      return call_if_smooth(functors::Silu{}, f);
  }
}

}  // namespace frugal::ops::cuda
