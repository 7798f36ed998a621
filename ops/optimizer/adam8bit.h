// Adam and AdamW with both moments in 8 bits (ops/optimizer/blockwise.h).
#pragma once
#include "ops/optimizer/adam.h"
#include "ops/optimizer/blockwise.h"

namespace frugal::ops {

// adam_steps() a block at a time: the moments are unpacked, updated in the parameter's dtype, used,
// and packed again; nothing like the parameter is allocated. m with the signed map, to the nearest;
// v with the positive one, drawn from `key`: a step changes v by less than the distance of two
// numbers, so that rounding to the nearest would hold it where it is, always on one side. (On a
// noisy quadratic the loss comes to rest 15 % above Adam's with the nearest, 2 % when drawn.)
// On CUDA all updates are one launch.  Errors: as adam_steps.
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
