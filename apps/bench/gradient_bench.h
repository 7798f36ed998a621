// The study of gradients (train/noise/gradient_study.h) of the run of a configuration.
#pragma once
#include "apps/config/config.h"
#include "apps/json.h"
#include "train/noise/gradient_study.h"

namespace frugal::apps {

class GradientBench : public train::GradientStudy {
 public:
  explicit GradientBench(const Config& config);  // Errors: a device other than cpu
  // Steps like those of training give the policy what it decides by. `config`: the policy's, which
  // differs from the network's only in its section compression. REQUIRES: resolved.
  void let_learn(SavePolicy& policy, const Config& config);
};

// An estimate over the unit of its errors. JSON has {"value", "standard_error"}; the text has its
// interval of 95 %.
Json estimate_json(const Estimate& estimate, double unit);
std::string estimate_text(const Estimate& estimate, double unit);
// What the text above or below a table says about what was measured.
std::string setting_text(int64_t train_steps, int64_t draws, int64_t batches,
                         const train::GradientErrors& errors);

}  // namespace frugal::apps
