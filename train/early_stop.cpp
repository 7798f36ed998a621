#include "train/early_stop.h"

#include <cmath>

#include "core/quoted.h"
#include "train/option_error.h"

namespace frugal::train {

double measure_of(const EpochResult& result, const std::string& metric, const BatchSpec& spec) {
  const Evaluation& judged = result.validation ? *result.validation : result.test;
  if (metric == "loss") return -judged.loss;
  if (metric == "accuracy" || !judged.metric) return judged.accuracy;
  return spec.metric == "perplexity" ? -*judged.metric : *judged.metric;
}

EarlyStop::EarlyStop(const EarlyStopOptions& options, const BatchSpec& spec)
    : options_(options), spec_(spec) {
  if (options.patience < 1)
    throw OptionError("train.early_stop.patience",
                      fmt::format("expected at least 1, got {}", options.patience));
  if (!(options.min_delta >= 0) || !std::isfinite(options.min_delta))
    throw OptionError("train.early_stop.min_delta",
                      fmt::format("expected a number of at least 0, got {}", options.min_delta));
  if (options.metric != "loss" && options.metric != "accuracy" && options.metric != "metric")
    throw OptionError(
        "train.early_stop.metric",
        fmt::format("expected loss, accuracy or metric, got {}", in_quotes(options.metric)));
  if (options.metric == "metric" && spec.metric.empty())
    throw OptionError("train.early_stop.metric",
                      "expected loss or accuracy, since the data have no other metric");
}

bool EarlyStop::add(const EpochResult& result) {
  const double value = measure_of(result, options_.metric, spec_);
  if (!state_.best || value > *state_.best + options_.min_delta) {
    state_.best = value;
    state_.waited = 0;
  } else {
    ++state_.waited;
  }
  return state_.waited >= options_.patience;
}

}  // namespace frugal::train
