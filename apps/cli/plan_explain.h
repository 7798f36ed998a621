// Which saved tensors of a step take most, and what would lower each: `frugal plan --explain`.
#pragma once
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "train/planning/way_steps.h"
#include "train/planning/ways.h"
#include "train/step_record.h"

namespace frugal::apps {

struct Explanation {
  struct Tensor {
    train::SavedRecord record;
    double bits = 0;    // bits an element, with what its codes need beside; 0: nothing is stored
    std::string lower;  // what would lower it
  };
  struct Op {
    std::string name;
    int64_t tensors = 0, rebuilt = 0;  // how many there are, and for how many nothing is stored
    int64_t bytes = 0;
  };
  StepMemory memory;
  std::vector<Tensor> largest;  // at most kLargest, the largest first
  int64_t others = 0, other_bytes = 0;
  // The saved bytes that belong to no tensor of an op, such as a seed. In a real step with offload
  // all bytes are here, because a thread of its own moves them.
  int64_t rest = 0;
  std::vector<Op> ops;  // the one with the most bytes first
  static constexpr size_t kLargest = 15;
};
// REQUIRES: `run` is that of the configuration, without a memory budget, and `steps` were made of
// it.
Explanation explain_step(const Config& config, const train::PlannedRun& run,
                         train::WaySteps& steps);

std::string text_of(const Explanation& explanation);
Json to_json(const Explanation& explanation);

}  // namespace frugal::apps
