#include "data/split.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random/random_streams.h"
#include "data/loader.h"

namespace frugal::data {
namespace {

// Draws `share` of the samples, each class alike: at least one of each class that has two or more,
// and never the only one. Depends on labels, share and seed alone. Errors: a share outside [0, 1).
std::vector<bool> draw_share(const std::vector<int64_t>& labels, int64_t classes, double share,
                             uint64_t seed) {
  FRUGAL_CHECK(share >= 0 && share < 1, "[split] expected a share in [0, 1), got {}", share);
  std::vector<int64_t> of_class(static_cast<size_t>(classes)), taken(of_class.size());
  for (const int64_t label : labels) ++of_class[static_cast<size_t>(label)];
  std::vector<bool> drawn(labels.size());
  for (const int64_t index :
       shuffled(static_cast<int64_t>(labels.size()), streams::kPictureSplit.key(seed))) {
    const auto label = static_cast<size_t>(labels[static_cast<size_t>(index)]);
    const int64_t count = of_class[label];
    int64_t wanted = std::llround(share * static_cast<double>(count));
    if (share > 0 && count > 1) wanted = std::clamp<int64_t>(wanted, 1, count - 1);
    if (count == 1) wanted = 0;
    if (taken[label] == wanted) continue;
    ++taken[label];
    drawn[static_cast<size_t>(index)] = true;
  }
  return drawn;
}

}  // namespace

SplitIndices split_samples(const std::vector<int64_t>& labels, int64_t classes, double train,
                           double validation, uint64_t seed) {
  FRUGAL_CHECK(train > 0 && validation > 0 && train + validation < 1 + kLeastShare,
               "[split] expected shares above 0 and of at most 1 together, got {} and {}", train,
               validation);
  const double rest_share = 1 - train - validation;
  const double tested = rest_share < kLeastShare ? 0 : rest_share;
  const std::vector<bool> tests = draw_share(labels, classes, tested, seed);
  std::vector<int64_t> rest, rest_labels;
  SplitIndices split;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (tests[i]) {
      split.test.push_back(static_cast<int64_t>(i));
    } else {
      rest.push_back(static_cast<int64_t>(i));
      rest_labels.push_back(labels[i]);
    }
  }
  const std::vector<bool> validates =
      draw_share(rest_labels, classes, validation / (train + validation), seed);
  for (size_t i = 0; i < rest.size(); ++i)
    (validates[i] ? split.validation : split.train).push_back(rest[i]);
  return split;
}

}  // namespace frugal::data
