// Adam and AdamW with both moments in 8 bits (ops/blockwise.h).
#pragma once
#include "ops/adam.h"
#include "ops/blockwise.h"

namespace frugal::ops {

// adam_step() a block at a time: the moments are unpacked, updated in the parameter's dtype, used,
// and packed again; nothing like the parameter is allocated. m with the signed map, v with the
// positive one, both of the parameter's elements.  Errors: as adam_step.
void adam8bit_step(const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                   const BlockwiseState& v, const AdamStep& step);
void adam8bit_kernel(Cpu, const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                     const BlockwiseState& v, const AdamStep& step);
void adam8bit_kernel(Cuda, const Tensor& parameter, const Tensor& gradient, const BlockwiseState& m,
                     const BlockwiseState& v, const AdamStep& step);

}  // namespace frugal::ops
