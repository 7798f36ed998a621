// Splits samples at random into those to train, to validate and to test on.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::data {

// Indices of samples, in rising order.
struct SplitIndices {
  std::vector<int64_t> train, validation, test;
};
// Shares to train and to validate on, above 0 and at most 1 together; the rest is tested on. labels:
// the class of each sample, in [0, classes). Each class is split alike, and the only sample of a
// class is trained on. Depends on labels, shares and seed alone.
SplitIndices split_samples(const std::vector<int64_t>& labels, int64_t classes, double train,
                           double validation, uint64_t seed);

}  // namespace frugal::data
