// Arithmetic of whole numbers. REQUIRES: no negative number; divisors above 0.
#pragma once
#include <cstdint>

namespace frugal {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace frugal
