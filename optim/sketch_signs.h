// The signs of optim/gradient_sketch.h, for every backend.
#pragma once
#include "core/host_device.h"
#include "optim/gradient_sketch.h"

namespace frugal::optim::sketch {

inline constexpr int64_t kWord = 64;  // signs from one hash
// Words of one row. A row is a run of elements that fills every bucket once.
inline constexpr int64_t kWords = (GradientSketch::kBuckets + kWord - 1) / kWord;

// Ref: Steele, Lea, Flood 2014 (SplitMix64).
FRUGAL_HD uint64_t signs_of(int64_t word) {
  uint64_t z = (static_cast<uint64_t>(word) + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace frugal::optim::sketch
