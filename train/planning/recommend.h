// Which preset fits the memory at hand, and what else does where none does.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "train/planning/ways.h"

namespace frugal::train {

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

// What the machine has free for another process, within the limit of its control group; 0: unknown.
// Linux.
int64_t free_memory();
// What of it tensors may take: all but a sixteenth and 64 MiB, for the program beside them.
int64_t free_for_tensors();

// Counts a step and an evaluation of each preset, and takes the first that fits into `memory`
// bytes. Where no step fits, it counts them with updates in the backward pass, then also with 8
// bits for the state of the optimizer, and then with recomputed blocks. REQUIRES: `steps` made of
// `run`.
Recommendation recommend(const PlannedRun& run, int64_t memory, WaySteps& steps);

// Says whether the plan of the run's memory budget fits into `memory` bytes. If not, it says
// whether there is a plan for a budget of that memory.
Recommendation recommend(const PlannedRun& run, int64_t memory, const Planner& plan);

}  // namespace frugal::train
