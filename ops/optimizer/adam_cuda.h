// One element of Adam's update, as ops/optimizer/adam_loops.h computes it. For .cu files.
#pragma once
#include "core/cuda/cuda_kernel.h"
#include "ops/optimizer/adam_loops.h"

namespace frugal::ops {

__device__ __forceinline__ float adam_m(const AdamFactors<float>& f, float g, float m) {
  return fmaf(f.rest1, g - m, m);
}
__device__ __forceinline__ float adam_v(const AdamFactors<float>& f, float g, float v) {
  return fmaf(f.rest2 * g, g, f.beta2 * v);
}
// rate m / (sqrt(v) correction + eps)
__device__ __forceinline__ float adam_direction(const AdamFactors<float>& f, float m, float v) {
  return f.rate * m / fmaf(sqrtf(v), f.correction, f.eps);
}
__device__ __forceinline__ void adam_element(const AdamFactors<float>& f, float& p, float g,
                                             float& m, float& v) {
  const float total = fmaf(f.decay, p, g);
  m = adam_m(f, total, m);
  v = adam_v(f, total, v);
  p = fmaf(f.keep, p, -adam_direction(f, m, v));
}

}  // namespace frugal::ops
