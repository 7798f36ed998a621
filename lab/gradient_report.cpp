#include "lab/gradient_report.h"

#include <cstdio>

#include "apps/cli/report.h"

namespace frugal::lab {

using namespace apps;

Json estimate_json(const Estimate& e, double unit) {
  return {{"value", e.value / unit}, {"standard_error", e.error / unit}};
}
std::string estimate_text(const Estimate& e, double unit) {
  return fmt::format("{:.4f} +- {:.4f}", e.value / unit, 1.96 * e.error / unit);
}

void print_gradients(const GradientSetting& setting, const char* name, const Json& results,
                     const std::vector<std::vector<std::string>>& rows) {
  const auto& [arguments, config, draws, unit] = setting;
  if (arguments.json) {
    const Json document = {{"model", config.model.name},
                           {"batch_size", config.data.batch_size},
                           {"train_steps", arguments.train_steps},
                           {"draws", draws},
                           {"batches", arguments.batches},
                           {"minibatch_variance", unit},
                           {name, results}};
    print_json(document);
    return;
  }
  std::printf(
      "%s, batch %lld, after %lld steps; %lld draws; over the variance of the gradient between "
      "minibatches (of %lld); intervals of 95 %%\n%s",
      config.model.name.c_str(), static_cast<long long>(config.data.batch_size),
      static_cast<long long>(arguments.train_steps), static_cast<long long>(draws),
      static_cast<long long>(arguments.batches), table(rows).c_str());
}

}  // namespace frugal::lab
