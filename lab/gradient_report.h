// How benchmarks of gradients show their results.
#pragma once
#include <string>
#include <vector>

#include "apps/cli/commands.h"
#include "apps/config/config.h"
#include "apps/json.h"
#include "lab/commands.h"
#include "train/gradient_noise.h"

namespace frugal::lab {

// The estimate divided by `unit`. JSON has {"value", "standard_error"}; the text has its interval
// of 95 %.
apps::Json estimate_json(const apps::Estimate& estimate, double unit);
std::string estimate_text(const apps::Estimate& estimate, double unit);

// What all results of a benchmark were measured with. unit: the variance between minibatches.
struct GradientSetting {
  const LabArguments& arguments;
  const apps::Config& config;
  int64_t draws = 0;
  double unit = 0;
};
// Prints a table of `rows`, whose first row has the heads, or, if asked for, JSON with `results`
// under `name`.
void print_gradients(const GradientSetting& setting, const char* name, const apps::Json& results,
                     const std::vector<std::vector<std::string>>& rows);

}  // namespace frugal::lab
