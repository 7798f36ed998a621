// Values that are rebuilt from codes may lie beyond those that were packed: by the rounding of a
// group's metadata, by a step of dither, or by a bound on the error. f16 ends at 65504, so such
// values could become infinities there. f32 and bf16 have room for them (max_magnitude()).
#pragma once
#include "core/finite.h"

namespace frugal::compress {

// The finite number of f16's range that is nearest to x. NaN and infinities stay what they are.
FRUGAL_HD float within_f16(float x) {
  constexpr float kMost = 65504;
  if (!is_finite(x)) return x;
  return x > kMost ? kMost : x < -kMost ? -kMost : x;
}

}  // namespace frugal::compress
