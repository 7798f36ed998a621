#include "autograd/packed_pass.h"

namespace frugal {

Tensor run_over(const SavedTensor& x, PackedPass pass, const SavedTensor& mask) {
  return x.run(pass, mask) ? pass.out : Tensor();
}

Tensor run_over(const Packed& x, PackedPass pass) { return x.run(pass) ? pass.out : Tensor(); }

Tensor variance_of(const SavedTensor& x) { return run_over(x, {PackedPass::Variance{}}); }

Tensor variance_of(const Packed& x) { return run_over(x, {PackedPass::Variance{}}); }

}  // namespace frugal
