// Options of losses for classes of pixels, shared by ops and autograd.
#pragma once
#include <cstdint>

namespace frugal {

struct DiceOptions {
  double smooth = 1;            // added to numerator and denominator; above 0
  int64_t ignore_index = -100;  // targets that do not count
};

struct FocalOptions {
  double gamma = 2;  // at least 0; 0: cross-entropy
  int64_t ignore_index = -100;
  bool sum = false;  // the sum over the rows instead of their mean
};

}  // namespace frugal
