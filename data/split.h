// Splits samples at random into those to train, to validate and to test on.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

namespace frugal::data {

// Draws `share` of the samples, each class alike: at least one of each class that has two or more,
// and never the only one. labels: the class of each sample, in [0, classes). Depends on labels,
// share and seed alone. Errors: a share outside [0, 1).
std::vector<bool> draw_share(const std::vector<int64_t>& labels, int64_t classes, double share,
                             uint64_t seed);

// Indices of samples, in rising order.
struct SplitIndices {
  std::vector<int64_t> train, validation, test;
};
// Shares to train and to validate on, above 0 and at most 1 together; the rest is tested on.
SplitIndices split_samples(const std::vector<int64_t>& labels, int64_t classes, double train,
                           double validation, uint64_t seed);

}  // namespace frugal::data
