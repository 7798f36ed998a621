// Ways to keep activations, side by side: what a step of a run takes with each, on `meta`.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/cli/largest.h"
#include "apps/config/config.h"
#include "train/planning/meta_step.h"

namespace frugal::apps {

// A row of `frugal plan`: a name, and the keys that make the run keep activations so.
struct PlanLevel {
  std::string name;
  std::vector<std::string> sets;  // "PATH=VALUE", for apply_sets()
  // The row without recomputed blocks or offload, which cost time; empty: this row has neither.
  // The row is worth showing if it takes less.
  std::string without = {};
  bool chooses_window = false;  // offload to a folder that we choose, so we choose the window, too
};

// In the order of the table:
//   whole; lossless (recipes); 8, 4, 3 and 2 bits; the presets that pack
//   with policy actnn its levels that stay in memory; with policy acgc growths of 1/4, 1 and 4
//   whole, 4 and 2 bits with every block recomputed, where the network has blocks
//   whole, 4 and 2 bits with offload, to the folder of the configuration or to the system's folder
//   for files of short life; without a folder in the configuration also with a window, which
//   memory_of_levels() and largest_of_levels() choose
std::vector<PlanLevel> plan_levels(const Config& config);

// Puts the keys of the level over `config`, which is not resolved. Errors (ConfigError): the level
// contradicts another key, as recomputed blocks contradict optim.in_backward.
Config with_level(const Config& config, const PlanLevel& level);

// Steps of one run on `meta`. All levels share the network, the optimizer and the batches.
class PlanSteps {
 public:
  explicit PlanSteps(const Config& config);  // not resolved; Errors: as resolve()
  // The memory of a step that keeps activations as `level` does. What entropy coding would save is
  // not counted, because it depends on values. REQUIRES: `level`, not resolved, differs from the
  // constructor's configuration at most in compression and in what train.checkpointing says.
  StepMemory step(Config level);
  StepRecord record(Config level);  // what such a step keeps, tensor by tensor
  Module& model() { return meta_->model(); }
  // The peak of an evaluation.
  int64_t evaluation(int64_t samples) { return meta_->evaluation(samples); }

 private:
  std::unique_ptr<MetaStep> meta_;
};

struct LevelMemory {
  std::string name, set;  // set: "--set PATH=VALUE ..."
  StepMemory memory;
  std::string why;           // this run cannot have the level; empty: it can
  std::string without = {};  // PlanLevel::without
  // Is the peak that of `without`, or higher? Then what costs time saves nothing, and the table
  // leaves the row out.
  bool idle = false;
};
// Rows for the configuration itself ("this config"; not with a memory budget) and for all levels.
std::vector<LevelMemory> memory_of_levels(const Config& config, PlanSteps& steps);
std::string text_of(const std::vector<LevelMemory>& levels);  // a table of 80 columns
Json to_json(const std::vector<LevelMemory>& levels);

struct LargestOfLevel {
  std::string name, set;
  Largest largest;
  std::string why;           // this run cannot have the level; empty: it can
  std::string without = {};  // PlanLevel::without
  bool idle = false;         // the value is no larger than that of `without`
};
// The largest value for each row of memory_of_levels(), or with `only` for the configuration alone.
// Errors: those of LargestSearch's constructor; `only` with a memory budget.
std::vector<LargestOfLevel> largest_of_levels(const Config& config, Growth growth, int64_t memory,
                                              bool only = false);
std::string text_of(const std::vector<LargestOfLevel>& levels, const std::string& what);
Json to_json(const std::vector<LargestOfLevel>& levels);

}  // namespace frugal::apps
