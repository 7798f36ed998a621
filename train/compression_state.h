// What checkpoints keep of a run's compression: all that later decisions depend on.
#pragma once
#include <optional>
#include <vector>

#include "compress/offload/offload_options.h"
#include "compress/policies/learned.h"
#include "train/planning/planner.h"

namespace frugal::train {

struct CompressionState {
  compress::Learned learned;     // empty: no Learner is there
  std::vector<double> tracking;  // see Tracking::state()
  std::optional<Planner::State> planner;
  compress::OffloadStats offload;  // what this run moved so far
};

}  // namespace frugal::train
