// Reports for people and for scripts.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/run_state.h"
#include "compress/offload/payload_store.h"
#include "core/memory.h"

namespace frugal::apps {

struct Speed {
  double samples_per_second = 0;  // of training, without evaluation
  std::string unit = "images";    // what is counted beside samples: see unit_of()
  double units_per_second = 0;
  double step_ms_median = 0;    // see StepTimes
  double adaptation_share = 0;  // of the time of training, to measure sensitivities
  double tracking_share = 0;    // and to watch convergence
};

// summary.json. `offload`: what this process wrote and read, if anything lay in a file.
Json summary_json(const Config& config, const RunState& state, const Speed& speed,
                  const std::optional<compress::OffloadStats>& offload = {});

// Columns padded to their widest cell; the first row is a heading. Columns after the first are
// right-aligned.
std::string table(const std::vector<std::vector<std::string>>& rows);

// One run, or several side by side with multiples of the first. Names head the columns.
// Errors: a summary that lacks a key.
std::string summary_table(const std::vector<std::string>& names,
                          const std::vector<Json>& summaries);

// What a line of the metrics of type "convergence" says.
std::string noise_text(const Json& convergence, int64_t step);

// What held the memory, and which settings to lower.
std::string explain(const OutOfMemory& error, const Config& config);

double median(std::vector<double> values);  // 0 if empty

// "resnet20, L1, recipes", "resnet20, budget 1/16 activations", "resnet20, actnn L3".
std::string run_title(const Config& config);

}  // namespace frugal::apps
