#include "ops/dense/elu.h"

#include "ops/cuda/cuda_map.h"
#include "ops/cuda/cuda_mask.h"
#include "ops/simd/scalar_math.h"

namespace frugal::ops {
namespace {

struct Elu {
  __device__ bool keeps(float x) const { return !(x <= 0); }
  __device__ float value(float x) const { return keeps(x) ? x : math::exp(x) - 1; }
  __device__ float operator()(float x) const { return value(x); }
};
struct EluGradient {
  __device__ float operator()(bool set, float dy, float y) const { return set ? dy : dy * (y + 1); }
};

}  // namespace

void elu_kernel(Cuda, const Tensor& x, const Tensor& y, const Tensor& mask) {
  if (mask.defined())
    cuda::write_mask(Elu{}, x, y, mask);
  else
    cuda::map(Elu{}, y, x);
}

void elu_backward_kernel(Cuda, const Tensor& dy, const Tensor& y, const Tensor& mask,
                         const Tensor& dx) {
  cuda::read_mask(EluGradient{}, mask, dx, dy, y);
}

}  // namespace frugal::ops
