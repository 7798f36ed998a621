// The largest batch, depth, width or resolution whose step fits into a number of bytes.
#pragma once
#include <functional>
#include <map>
#include <memory>

#include "train/planning/meta_step.h"
#include "train/planning/ways.h"

namespace frugal::train {

// The largest value whose peak is at most `memory`: by `coarse` first, from `own` on, then the
// values between the one that was found and the next. A rise that is not quite even is forgiven:
// the two next coarse values are tried, too. Asks `peak_of` for few values.
Largest find_largest(const SearchRange& range, int64_t own, int64_t memory,
                     const std::function<int64_t(int64_t)>& peak_of);

// Searches for several ways to keep activations of one run, which share the networks on `meta`.
// Thread safety: one thread.
class LargestSearch {
 public:
  // Errors: those of run.growing().
  LargestSearch(const PlannedRun& run, Growth growth);

  // The largest value for which a step of the trainer that keeps activations in this way takes at
  // most `memory` bytes on `meta`. An evaluation does not count: its batches may be as small as
  // they must. Entropy coding does not count either, because what it saves depends on values.
  // Errors: OptionError for a way with a memory budget, which is a peak itself; those of the run
  // with another value.
  Largest find(const Way& way, int64_t memory);

 private:
  int64_t peak_of(const Way& way, int64_t value);

  const PlannedRun& run_;
  bool one_network_;  // batches grow, so all values share a network
  Growing growing_;
  std::map<int64_t, std::unique_ptr<MetaStep>>
      steps_;  // by value; of batches one where the input is released and one where not
};

}  // namespace frugal::train
