// Conversion of floating values to integers, on the CPU and on CUDA. Internal.
#pragma once

#include <limits>
#include <type_traits>

#include "core/dtype.h"

namespace frugal {

// A floating value without its fraction. A value beyond those of To becomes the nearest one, and
// NaN becomes 0: a plain conversion of such a value is undefined.
template <class To, class From>
FRUGAL_HD To to_integer(From value) {
  constexpr To kLowest = std::numeric_limits<To>::lowest(),
               kLargest = std::numeric_limits<To>::max();
  constexpr From kBelow = static_cast<From>(kLowest);
  constexpr From kAbove = static_cast<From>(kLargest / 2 + 1) * 2;  // a power of 2, so it is exact
  if (value != value) return 0;
  if (value <= kBelow) return kLowest;
  if (value >= kAbove) return kLargest;
  return static_cast<To>(value);
}

// Is the conversion one of to_integer()? Numbers become true or false in another way.
template <class To, class From>
constexpr bool kToInteger =
    std::is_floating_point_v<From>&& std::is_integral_v<To> && !std::is_same_v<To, bool>;

}  // namespace frugal
