#include "ops/dense/gated_loops.h"

#include "core/vector_targets.h"
#include "ops/simd/independent.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/dense/gated_loops.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

// Plain loops over the functors: the compiler vectorises them for the target of each pass.
HWY_BEFORE_NAMESPACE();
namespace frugal::ops::simd {
namespace HWY_NAMESPACE {

template <class F>
HWY_ATTR void GatedRow(F f, const float* gate, const float* up, const float* variance, float* y,
                       int64_t n) {
  if (variance == nullptr) {
    FRUGAL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f.f(gate[i]) * up[i];
  } else {
    FRUGAL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = estimate(f, gate[i], variance[i]) * up[i];
  }
}

// dup comes first, because dgate may be written over dy.
template <class F>
HWY_ATTR void GatedRowBackward(F f, const float* dy, const float* gate, const float* up,
                               const float* variance, const GatedTo& to, int64_t n) {
  if (float* const dup = to.dup; dup != nullptr) GatedRow(f, gate, dy, variance, dup, n);
  float* const dgate = to.dgate;
  if (dgate == nullptr) return;
  if (variance == nullptr) {
    FRUGAL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dgate[i] = f.df(dy[i] * up[i], gate[i]);
  } else {
    FRUGAL_INDEPENDENT
    for (int64_t i = 0; i < n; ++i)
      dgate[i] = backward_estimate(f, dy[i] * up[i], gate[i], variance[i]);
  }
}

void GatedLoop(Gate kind, const float* gate, const float* up, const float* variance, float* y,
               int64_t n) {
  with_gate(kind, [&](auto f) HWY_ATTR { GatedRow(f, gate, up, variance, y, n); });
}

void GatedBackward(Gate kind, const float* dy, const float* gate, const float* up,
                   const float* variance, const GatedTo& to, int64_t n) {
  with_gate(kind, [&](auto f) HWY_ATTR { GatedRowBackward(f, dy, gate, up, variance, to, n); });
}

}  // namespace HWY_NAMESPACE
}  // namespace frugal::ops::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace frugal::ops::simd {

HWY_EXPORT(GatedLoop);
HWY_EXPORT(GatedBackward);

void gated(Gate kind, const float* gate, const float* up, const float* variance, float* y,
           int64_t n) {
  HWY_DYNAMIC_DISPATCH(GatedLoop)(kind, gate, up, variance, y, n);
}
void gated_backward(Gate kind, const float* dy, const float* gate, const float* up,
                    const float* variance, const GatedTo& to, int64_t n) {
  HWY_DYNAMIC_DISPATCH(GatedBackward)(kind, dy, gate, up, variance, to, n);
}

}  // namespace frugal::ops::simd
#endif
