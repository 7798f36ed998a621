#include "ops/dense/bitmask.h"

#include "ops/cuda/cuda_map.h"
#include "ops/cuda/cuda_mask.h"

namespace frugal::ops {
namespace {

// slope * v; for slope 0 the result is 0 even if v is infinite.
__device__ __forceinline__ float scaled(float v, float slope) {
  return slope == 0 ? 0.0f : slope * v;
}

struct Rectify {
  float slope;
  __device__ bool keeps(float v) const { return !(v <= 0); }
  __device__ float value(float v) const { return keeps(v) ? v : scaled(v, slope); }
};
struct Clamp {
  float lo, hi;
  __device__ bool keeps(float v) const { return !(v < lo) && !(v > hi); }
  __device__ float value(float v) const { return v < lo ? lo : (v > hi ? hi : v); }
};
struct Select {
  float slope;
  __device__ float operator()(bool set, float v) const { return set ? v : scaled(v, slope); }
};
template <class F>
struct Clipped {
  F f;
  __device__ float operator()(float v) const { return f.value(v); }
};

template <class F>
void map_and_mask(const F& f, const Tensor& x, const Tensor& y, const Tensor& mask) {
  if (mask.defined())
    cuda::write_mask(f, x, y, mask);
  else
    cuda::map(Clipped<F>{f}, y, x);
}

}  // namespace

void rectify_kernel(Cuda, const Tensor& x, double slope, const Tensor& y, const Tensor& mask) {
  map_and_mask(Rectify{static_cast<float>(slope)}, x, y, mask);
}

void clamp_kernel(Cuda, const Tensor& x, double lo, double hi, const Tensor& y,
                  const Tensor& mask) {
  // The bounds are rounded to the dtype first, so that clamping twice equals clamping once.
  cuda::with_activation(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto rounded = [](double bound) {
      return static_cast<float>(static_cast<T>(static_cast<float>(bound)));
    };
    map_and_mask(Clamp{rounded(lo), rounded(hi)}, x, y, mask);
  });
}

void select_by_mask_kernel(Cuda, const Tensor& x, const Tensor& mask, double slope,
                           const Tensor& y) {
  cuda::read_mask(Select{static_cast<float>(slope)}, mask, y, x);
}

}  // namespace frugal::ops
