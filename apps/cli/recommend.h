// Which preset fits the memory at hand: `frugal plan`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/cli/plan_levels.h"

namespace frugal::apps {

struct Recommendation {
  struct Row {
    std::string preset, what;
    int64_t activations = 0, peak = 0;  // bytes; of a step without what entropy coding saves
  };
  std::vector<Row> rows;  // of all presets
  int64_t memory = 0;     // that tensors may take
  std::string from;       // where it comes from: "--memory", "memory_limit", "free memory"
  std::string preset;     // the first one that fits, or else the one of the lowest peak
  bool fits = false;
  // The largest data.test_batch_size whose evaluation fits, where the configuration's does not.
  std::optional<int64_t> test_batch = {};
};

// What the machine has free for another process, within the limit of its control group; 0: unknown.
// Linux.
int64_t free_memory();

// Counts a step and an evaluation of each preset on the device meta. `memory`: bytes; else
// memory_limit of the configuration if there is one; else what this machine has free, less a
// sixteenth and 64 MiB for the program beside the tensors.
// REQUIRES: `config` as load_config() gives it, not resolved; `steps` of it. Errors (ConfigError):
// no memory is given for a device that is not this machine's.
Recommendation recommend(const Config& config, std::optional<int64_t> memory, PlanSteps& steps);

std::string text_of(const Recommendation& found);  // what to set and why, for people
Json to_json(const Recommendation& found);

}  // namespace frugal::apps
