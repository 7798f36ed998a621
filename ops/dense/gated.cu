#include "ops/dense/gated.h"

#include "ops/cuda/cuda_map.h"
#include "ops/dense/gated_loops.h"

namespace frugal::ops {
namespace {

template <class F>
struct Gated {
  F f;
  __device__ float operator()(float gate, float up) const { return f.f(gate) * up; }
};
template <class F>
struct GatedEstimate {
  F f;
  __device__ float operator()(float gate, float up, float variance) const {
    return estimate(f, gate, variance) * up;
  }
};
template <class F>
struct GateGradient {
  F f;
  __device__ float operator()(float dy, float gate, float up) const { return f.df(dy * up, gate); }
};
template <class F>
struct GateGradientEstimate {
  F f;
  __device__ float operator()(float dy, float gate, float up, float variance) const {
    return backward_estimate(f, dy * up, gate, variance);
  }
};

}  // namespace

void gated_kernel(Cuda, Gate kind, const Tensor& gate, const Tensor& up, const Tensor& variance,
                  const Tensor& y) {
  with_gate(kind, [&]<class F>(F f) {
    if (variance.defined())
      cuda::map(GatedEstimate<F>{f}, y, gate, up, variance);
    else
      cuda::map(Gated<F>{f}, y, gate, up);
  });
}

void gated_backward_kernel(Cuda, Gate kind, const Tensor& dy, const Tensor& gate, const Tensor& up,
                           const Tensor& variance, const GatedGradients& to) {
  // This comes first, because dgate may be written over dy.
  if (to.dup.defined()) gated_kernel(Cuda{}, kind, gate, dy, variance, to.dup);
  if (!to.dgate.defined()) return;
  with_gate(kind, [&]<class F>(F f) {
    if (variance.defined())
      cuda::map(GateGradientEstimate<F>{f}, to.dgate, dy, gate, up, variance);
    else
      cuda::map(GateGradient<F>{f}, to.dgate, dy, gate, up);
  });
}

}  // namespace frugal::ops
