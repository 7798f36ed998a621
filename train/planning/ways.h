// Ways to keep activations, side by side: what a step of a run takes with each, on `meta`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/planning/planned_run.h"
#include "train/training_step.h"

namespace frugal::train {

struct WayMemory {
  Way way;
  StepMemory memory;
  std::string why;  // this run cannot have the way; empty: it can
  // Is the peak that of `way.without`, or higher? Then what costs time saves nothing.
  bool idle = false;
};

// A result of a search for the largest that fits (largest.h).
struct Largest {
  int64_t value = 0;     // 0: the smallest value does not fit
  int64_t peak = 0;      // bytes of a step with `value`; where it is 0, with the smallest value
  bool limited = false;  // `value` is the largest that the number may have
};

struct LargestOfWay {
  Way way;
  Largest largest;
  std::string why;    // this run cannot have the way; empty: it can
  bool idle = false;  // the value is no larger than that of `way.without`
};
// The largest value for each row of memory_of_ways(), or with `only` for the run alone. Errors:
// those of LargestSearch's constructor.
std::vector<LargestOfWay> largest_of_ways(const PlannedRun& run, Growth growth, int64_t memory,
                                          bool only = false);

// Which preset fits the memory at hand, and what else does where none does (recommend.h).
struct Recommendation {
  struct Row {
    std::string preset, what;           // empty: no preset, but a memory budget
    Savings with = {};                  // what the run does beside the preset
    int64_t budget = 0;                 // bytes of a budget in the place of the run's; 0: its own
    int64_t activations = 0, peak = 0;  // bytes of a step, without what entropy coding saves
    bool changes() const { return budget > 0 || with != Savings(); }
  };
  // With a memory budget, a row for its plan; if that does not fit, also one for the plan of a
  // budget of `memory`. Without one, a row for each preset alone. If no step of these fits, rows
  // for presets with savings follow, up to the first one that fits.
  std::vector<Row> rows;
  size_t chosen = 0;  // the row that fits, or else the one of the lowest peak
  bool fits = false;
  int64_t memory = 0;  // what tensors may take
  // The largest test batch whose evaluation fits, where the run's does not.
  std::optional<int64_t> test_batch = {};

  const Row& row() const { return rows.at(chosen); }
};

}  // namespace frugal::train
