// Which preset fits the memory at hand, and what else does where none does.
#pragma once
#include <cstdint>

#include "train/planning/way_steps.h"

namespace frugal::train {

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
