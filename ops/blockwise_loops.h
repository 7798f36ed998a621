// The loops of ops/blockwise.h over one block, compiled once per instruction set and chosen at run
// time (see ops/simd_loops.h). An element's byte does not depend on its place.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// The largest magnitude of x [n]; NaN where an element is not finite.
float largest_magnitude(const float* x, int64_t n);

// The bytes of x [n] / scale, with the positive map or the one with signs: the nearest numbers, or
// the lower or upper neighbour as `random` [n] says, 16 bits each, unless null.  REQUIRES: scale
// above 0 and finite.
void state_codes(const float* x, int64_t n, float scale, bool positive, const uint16_t* random,
                 uint8_t* codes);

}  // namespace frugal::ops::simd
