// What the tests of detection networks share.
#pragma once
#include "models/detection/detector.h"

namespace frugal::models {

// Two pictures: two objects in the first, none in the second.
inline DetectionTargets two_pictures() {
  return {Tensor::of({{4, 6, 30, 40}, {20, 20, 60, 36}}), Tensor::of({1, 2}, DType::i64),
          Tensor::of({2, 0}, DType::i64)};
}

inline Variable total(const NamedVariables& terms) {
  Variable sum;
  for (const auto& [name, term] : terms) sum = sum.defined() ? sum + term : term;
  return sum;
}

}  // namespace frugal::models
