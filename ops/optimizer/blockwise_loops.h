// The loops of ops/optimizer/blockwise.h over one block, compiled once per instruction set and
// chosen at run time (see ops/simd/simd_loops.h). The byte of an element does not depend on its
// place.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

inline constexpr int kDecades = 7;

// Constants of each decade e: the factor that brings it to [0.1, 1], its number of parts, and the
// middle of its first part.
struct Decades {
  float scale[kDecades], parts[kDecades], first[kDecades];
};
constexpr Decades decades_of(bool positive) {
  Decades d{};
  double scale = 1;
  for (int e = kDecades - 1; e >= 0; --e, scale *= 10) {
    const double parts = positive ? 2 << e : 1 << e;
    d.scale[e] = static_cast<float>(scale);
    d.parts[e] = static_cast<float>(parts);
    d.first[e] = static_cast<float>((0.1 + 0.45 / parts) / scale);
  }
  return d;
}

// The largest magnitude of x [n]; NaN if an element is not finite.
float largest_magnitude(const float* x, int64_t n);

// The bytes of x [n] / scale, with the positive map or the map with signs. If `random` is null,
// each element takes the nearest number. Else `random` [n] holds 16 bits for each element, which
// choose the lower or the upper neighbour.  REQUIRES: scale is above 0 and finite.
void state_codes(const float* x, int64_t n, float scale, bool positive, const uint16_t* random,
                 uint8_t* codes);

}  // namespace frugal::ops::simd
