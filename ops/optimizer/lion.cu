#include "ops/optimizer/lion.h"

#include "ops/cuda/cuda_tensors.h"
#include "ops/optimizer/one_moment_cuda.h"

namespace frugal::ops {
namespace {

// Each product is rounded on its own: a sign that differed from the CPU's would move the parameter
// by two steps.
struct LionElement {
  using Factors = LionFactors<float>;
  __device__ static void apply(const Factors& f, float& p, float g, float& m) {
    const float direction = __fadd_rn(__fmul_rn(f.beta1, m), __fmul_rn(f.rest1, g));
    const float sign = static_cast<float>(direction > 0) - static_cast<float>(direction < 0);
    p = __fadd_rn(p, -__fmul_rn(f.lr, __fadd_rn(sign, __fmul_rn(f.decay, p))));
    m = __fadd_rn(__fmul_rn(f.beta2, m), __fmul_rn(f.rest2, g));
  }
};

struct Lion {  // tensors: parameter, gradient, m
  using Factors = LionFactors<float>;
  static constexpr int kTensors = 3;
  static constexpr unsigned kWritten = 0b101;
  __device__ static void apply(const Factors& f, float (&x)[3]) {
    LionElement::apply(f, x[0], x[1], x[2]);
  }
};

}  // namespace

void lion_steps_kernel(Cuda, const std::vector<LionUpdate>& updates) {
  std::vector<cuda::TensorEntry<3, LionFactors<float>>> entries;
  for (const LionUpdate& u : updates)
    entries.push_back({{&u.parameter, &u.gradient, &u.m}, LionFactors<float>::of(u.step)});
  cuda::update_tensors<Lion>(entries);
}

void lion8bit_steps_kernel(Cuda, const std::vector<Lion8bitUpdate>& updates) {
  cuda::update_one_moment<LionElement>(updates, [](const Lion8bitUpdate& u) { return &u.m; });
}

}  // namespace frugal::ops
