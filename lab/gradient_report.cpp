#include "lab/gradient_report.h"

#include <cstdio>

#include "apps/cli/report.h"

namespace frugal::lab {

using namespace apps;

void GradientRows::add(std::vector<std::string> cells, Json values,
                       const train::GradientErrors& errors, double unit) {
  cells.push_back(estimate_text(errors.rounding, unit));
  cells.push_back(estimate_text(errors.squared_bias, unit));
  rows.push_back(std::move(cells));
  values["variance"] = estimate_json(errors.rounding, unit);
  values["squared_bias"] = estimate_json(errors.squared_bias, unit);
  results.push_back(std::move(values));
}

void print_gradients(const LabArguments& arguments, const Config& config, int64_t draws,
                     const GradientRows& rows) {
  if (arguments.json) {
    const Json document = {{"model", config.model.name},
                           {"batch_size", config.data.batch_size},
                           {"train_steps", arguments.train_steps},
                           {"draws", draws},
                           {"batches", arguments.batches},
                           {"unit", rows.last.unit_name()},
                           {"minibatch_variance", rows.last.minibatch.value},
                           {"squared_gradient", rows.last.square},
                           {rows.name, rows.results}};
    print_json(document);
    return;
  }
  std::printf("%s, batch %lld, %s\n%s", config.model.name.c_str(),
              static_cast<long long>(config.data.batch_size),
              setting_text(arguments.train_steps, draws, arguments.batches, rows.last).c_str(),
              table(rows.rows).c_str());
}

}  // namespace frugal::lab
