// Which preset fits the memory at hand: `frugal plan`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/plan_levels.h"
#include "train/planning/planner.h"

namespace frugal::apps {

struct Recommendation {
  struct Row {
    std::string preset, what;           // empty: no preset, but a memory budget
    std::vector<std::string> sets;      // "PATH=VALUE": keys beside the preset's
    int64_t activations = 0, peak = 0;  // bytes of a step, without what entropy coding saves
  };
  // With a memory budget, a row for its plan; if that does not fit, also one for the plan of a
  // budget of `memory`. Without one, a row for each preset alone. If no step of these fits, rows
  // for presets with other keys follow, up to the first one that fits.
  std::vector<Row> rows;
  size_t chosen = 0;  // the row that fits, or else the one of the lowest peak
  bool fits = false;
  int64_t memory = 0;  // what tensors may take
  std::string from;    // where it comes from: "--memory", "memory_limit", "free memory"
  // The largest data.test_batch_size whose evaluation fits, where the configuration's does not.
  std::optional<int64_t> test_batch = {};

  const Row& row() const { return rows.at(chosen); }
};

// What the machine has free for another process, within the limit of its control group; 0: unknown.
// Linux.
int64_t free_memory();

// Counts a step and an evaluation of each preset on the device meta, and takes the first that fits.
// Where no step fits, it counts them with updates in the backward pass, then also with 8 bits for
// the state of the optimizer, and then with recomputed blocks. `memory`: bytes; else memory_limit
// of the configuration if there is one; else what this machine has free, less a sixteenth and
// 64 MiB for the program beside the tensors.
// REQUIRES: `config` as load_config() gives it, not resolved; `steps` made of it.
// Errors (ConfigError): no memory is given for a device that is not this machine's.
Recommendation recommend(const Config& config, std::optional<int64_t> memory, PlanSteps& steps);

// Says whether the plan of the configuration's memory budget fits into `memory`, which is chosen as
// above. If not, it says whether there is a plan for a budget of that memory.
// REQUIRES: `config` is resolved and has a budget; `planner` was made of it.
Recommendation recommend(const Config& config, std::optional<int64_t> memory,
                         const Planner& planner);

std::string text_of(const Recommendation& found);  // what to set and why, for people
Json to_json(const Recommendation& found);

}  // namespace frugal::apps
