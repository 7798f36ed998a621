// The f32 loops of gated units, compiled once per instruction set and chosen at run time (see
// ops/simd/simd_loops.h).
#pragma once
#include "ops/dense/functors.h"
#include "ops/dense/gated.h"

namespace frugal::ops {

// Calls f with the functor of act.
template <class F>
void with_gate(Gate kind, F&& f) {
  switch (kind) {
    case Gate::silu:
      return f(functors::Silu{});
    case Gate::gelu:
      return f(functors::GeluExact{});
    case Gate::gelu_tanh:
      return f(functors::GeluTanh{});
  }
}

namespace simd {

// The functions of ops/dense/gated.h over n elements. variance, dgate, dup, and without dgate `up`,
// may be null.
void gated(Gate kind, const float* gate, const float* up, const float* variance, float* y,
           int64_t n);
struct GatedTo {
  float *dgate, *dup;
};
void gated_backward(Gate kind, const float* dy, const float* gate, const float* up,
                    const float* variance, const GatedTo& to, int64_t n);

}  // namespace simd
}  // namespace frugal::ops
