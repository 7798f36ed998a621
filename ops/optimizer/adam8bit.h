// Adam and AdamW with both moments in 8 bits (ops/optimizer/blockwise.h).
#pragma once
#include "ops/optimizer/adam.h"
#include "ops/optimizer/blockwise.h"

namespace frugal::ops {

// Does adam_steps() one block at a time: the moments are unpacked, updated in the parameter's
// dtype, used, and packed again. No tensor of the parameter's size is allocated. m uses the map
// with signs and rounds to the nearest number. v uses the positive map and rounds stochastically,
// drawn from `key`: one step changes v by less than the distance of two neighbouring numbers, so
// rounding to the nearest would leave v where it is. (On a noisy quadratic, the loss settles 15 %
// above Adam's with rounding to the nearest, 2 % above with stochastic rounding.)
// On CUDA all updates take one launch.  Errors: as in adam_steps().
struct Adam8bitUpdate {
  Tensor parameter, gradient;
  BlockwiseState m, v;
  AdamStep step;
  RngKey key;
};
void adam8bit_steps(const std::vector<Adam8bitUpdate>& updates);
void adam8bit_steps_kernel(Cpu, const std::vector<Adam8bitUpdate>& updates);
void adam8bit_steps_kernel(Cuda, const std::vector<Adam8bitUpdate>& updates);

}  // namespace frugal::ops
