// Splits samples at random into those to train, to validate and to test on.
#pragma once
#include <cstdint>
#include <vector>

namespace frugal::data {

// Indices of samples, in rising order.
struct SplitIndices {
  std::vector<int64_t> train, validation, test;
};
// A smaller rest of shares is none: 0.7 and 0.3 leave 5.6e-17.
inline constexpr double kLeastShare = 1e-9;
// Shares to train and to validate on, above 0 and at most 1 together; the rest is tested on. labels:
// the class of each sample, in [0, classes). Each class is split alike, and the only sample of a
// class is trained on. Depends on labels, shares and seed alone.
SplitIndices split_samples(const std::vector<int64_t>& labels, int64_t classes, double train,
                           double validation, uint64_t seed);

}  // namespace frugal::data
