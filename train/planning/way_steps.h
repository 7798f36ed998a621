// The rows of a table of ways to keep activations, and the steps on `meta` that fill them.
#pragma once
#include <memory>
#include <vector>

#include "compress/policies/levels.h"
#include "train/planning/planner.h"
#include "train/planning/ways.h"

namespace frugal::train {

// What the run does itself.
Way own_way(const PlannedRun& run);
// Every tensor has one width; 0: all are kept whole, and none is rebuilt.
Way bits_way(const PlannedRun& run, int bits);
Way preset_way(const PlannedRun& run, const compress::Named& preset);

// The rows of a table, in this order:
//   whole; lossless (recipes); 8, 4, 3 and 2 bits; the presets that pack
//   with policy actnn its levels that stay in memory; with policy acgc growths of 1/4, 1 and 4
//   whole, 4 and 2 bits with every block recomputed, where the network has blocks
//   whole, 4 and 2 bits with offload, to the folder of the run or to the system's folder for files
//   of short life; without a folder in the run also with a window, which memory_of_ways() and
//   largest_of_ways() choose
std::vector<Way> ways(const PlannedRun& run);

// The policy of steps on `meta` that keep activations in this way. What entropy coding would save
// is not counted, because it depends on values; what decoding takes is.
std::unique_ptr<SavePolicy> policy_on_meta(const Way& way, const PlannerOptions& options);

// Steps of one run on `meta`. All ways share the network, the optimizer and the batches.
class WaySteps {
 public:
  // REQUIRES: the run can have the savings. Errors: those of the run's parts.
  explicit WaySteps(const PlannedRun& run, const Savings& with = {});
  // The memory of a step that keeps activations in this way, after the first one of a run. plan: of
  // the way's memory budget.
  StepMemory step(const Way& way, const Planner* plan = nullptr);
  // The highest of each measure in the steps of a run. REQUIRES: no memory budget.
  StepMemory highest(const Way& way);
  // What such a step keeps, tensor by tensor.
  StepRecord record(const Way& way);
  Module& model() { return meta_->model(); }
  // The peak of an evaluation between steps that recompute so many blocks.
  int64_t evaluation(int64_t samples, int64_t checkpointed_blocks) {
    return meta_->evaluation(samples, checkpointed_blocks);
  }

 private:
  PlannerOptions options_;
  std::unique_ptr<MetaStep> meta_;
};

// Rows for the run itself (not with a memory budget) and for all ways.
std::vector<WayMemory> memory_of_ways(const PlannedRun& run, WaySteps& steps);

}  // namespace frugal::train
