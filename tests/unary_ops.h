// All ops of ops::Unary. The enum is tried for every number that it can hold, so nobody has to keep
// a list of its names.
#pragma once
#include <vector>

#include "ops/dense/elementwise.h"
#include "ops/dense/functors.h"

namespace frugal_test {

inline std::vector<frugal::ops::Unary> unary_ops() {
  std::vector<frugal::ops::Unary> all;
  for (int value = 0; value < 256; ++value) {
    const auto op = static_cast<frugal::ops::Unary>(value);
    frugal::ops::with_unary(op, [&](auto) { all.push_back(op); });
  }
  return all;
}

}  // namespace frugal_test
