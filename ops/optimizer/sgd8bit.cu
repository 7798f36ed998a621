#include "ops/optimizer/sgd8bit.h"

#include "ops/optimizer/one_moment_cuda.h"
#include "ops/optimizer/sgd_loops.h"

namespace frugal::ops {
namespace {

// The element of sgd_loop(). Each product is rounded on its own, so that the codes are those of the
// CPU.
struct Sgd8bitElement {
  using Factors = SgdFactors<float>;
  __device__ static void apply(const Factors& f, float& p, float g, float& v) {
    const float total = __fadd_rn(g, __fmul_rn(f.decay, p));
    v = __fadd_rn(__fmul_rn(f.momentum, v), total);
    const float both = __fadd_rn(__fmul_rn(f.of_total, total), __fmul_rn(f.of_velocity, v));
    p = __fadd_rn(p, -__fmul_rn(f.lr, both));
  }
};

}  // namespace

void sgd8bit_steps_kernel(Cuda, const std::vector<Sgd8bitUpdate>& updates) {
  cuda::update_one_moment<Sgd8bitElement>(updates,
                                          [](const Sgd8bitUpdate& u) { return &u.velocity; });
}

}  // namespace frugal::ops
