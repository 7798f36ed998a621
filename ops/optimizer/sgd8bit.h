// Stochastic gradient descent with its momentum in 8 bits (ops/optimizer/blockwise.h).
#pragma once
#include "ops/optimizer/blockwise.h"
#include "ops/optimizer/sgd.h"

namespace frugal::ops {

// Does sgd_steps() one block at a time: the velocity is unpacked, updated in the parameter's dtype,
// used, and packed again. No tensor of the parameter's size is allocated. The velocity uses the map
// with signs and rounds stochastically, drawn from `key`: where gradients are small beside the
// largest velocity of the block, one step changes the velocity by less than the distance of two
// neighbouring numbers, so rounding to the nearest would leave the velocity where it is.
// On CUDA all updates take one launch.  Errors: as in sgd_steps().
struct Sgd8bitUpdate {
  Tensor parameter, gradient;
  BlockwiseState velocity;
  SgdStep step;
  RngKey key;
};
void sgd8bit_steps(const std::vector<Sgd8bitUpdate>& updates);
void sgd8bit_steps_kernel(Cpu, const std::vector<Sgd8bitUpdate>& updates);
void sgd8bit_steps_kernel(Cuda, const std::vector<Sgd8bitUpdate>& updates);

}  // namespace frugal::ops
