// The f32 loops of packed matrices, compiled once per instruction set and chosen at run time (see
// ops/simd/simd_loops.h). Internal.
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace frugal::ops::simd {

// Whole blocks of 64 codes, each with its scale.
void unpack_nf4(const uint8_t* codes, const float* scales, const float* values, int64_t blocks,
                float* to);
void unpack_int8(const uint8_t* codes, float scale, int64_t n, float* to);
void unpack_bf16(const BFloat16* values, int64_t n, float* to);

}  // namespace frugal::ops::simd
