// How far a gradient is from another one.
#pragma once
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

// |a - b| / |b|
inline double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}
