// Conversion between f32 and bf16, compiled once per instruction set and chosen at run time (see
// ops/simd/simd_loops.h).
#pragma once
#include <cstdint>

#include "core/dtype.h"

namespace frugal::ops::simd {

void widen(const BFloat16* from, float* to, int64_t n);
// Rounds to nearest even and keeps NaN.
void narrow(const float* from, BFloat16* to, int64_t n);

}  // namespace frugal::ops::simd
