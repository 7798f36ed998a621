#include "train/early_stop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/words/quoted.h"
#include "train/option_error.h"

namespace frugal::train {
namespace {

double measure(const EpochResult& result, const std::string& which, bool higher) {
  const Evaluation& judged = result.validation ? *result.validation : result.test;
  if (which == "loss") return -judged.loss;
  if (which == "accuracy" || !judged.metric) return judged.accuracy;
  if (std::isnan(*judged.metric)) return -std::numeric_limits<double>::infinity();
  return higher ? *judged.metric : -*judged.metric;
}

}  // namespace

std::vector<by_name::Option<EarlyStopOptions>> EarlyStopOptions::list() {
  namespace range = by_name::range;
  using S = EarlyStopOptions;
  const by_name::ReadWhen<S> stopping{
      "@patience", {"patience"}, [](const S& s) { return s.patience > 0; }};
  return {{{"patience", range::integer(0, 1'000'000),
            "Stop after so many evaluations in a row without a better one; 0: never. The best "
            "weights are then those of the best metric."},
           &S::patience},
          {{"min_delta", range::number(0, 1e9),
            "An evaluation is better if its metric is better by more than this."},
           &S::min_delta,
           stopping},
          {{"metric", range::choice("loss, accuracy, metric"),
            "What gets better; metric: what train.metric says, such as f1 or perplexity."},
           &S::metric,
           stopping},
          {{"unit", range::choice("evaluations, epochs"),
            "What patience counts: evaluations, or epochs from the best one, which lie between "
            "evaluations, too."},
           &S::unit,
           stopping}};
}

double measure_of(const EpochResult& result, const std::string& which, const Task& task) {
  return measure(result, which, higher_is_better(task));
}

EarlyStop::EarlyStop(const EarlyStopOptions& options, const Task& task)
    : options_(options), higher_is_better_(higher_is_better(task)) {
  const std::string& which = options.metric;
  if (options.patience < 1)
    throw OptionError("early_stop.patience",
                      fmt::format("expected at least 1, got {}", options.patience));
  if (!(options.min_delta >= 0) || !std::isfinite(options.min_delta))
    throw OptionError("early_stop.min_delta",
                      fmt::format("expected a number of at least 0, got {}", options.min_delta));
  if (which != "loss" && which != "accuracy" && which != "metric")
    throw OptionError("early_stop.metric",
                      fmt::format("expected loss, accuracy or metric, got {}", in_quotes(which)));
  if (which == "accuracy" && !task.has_accuracy())
    throw OptionError("early_stop.metric",
                      fmt::format("expected loss{}, since the data have no accuracy",
                                  task.spec().metric.empty() ? "" : " or metric"));
  if (which != "metric" && task.spec().has_views())
    throw OptionError("early_stop.metric",
                      "expected metric, since evaluations of views have no loss");
  if (which == "metric" && task.spec().metric.empty())
    throw OptionError("early_stop.metric",
                      "expected loss or accuracy, since the data have no other metric");
}

bool EarlyStop::add(const EpochResult& result, int64_t epochs) {
  // A checkpoint holds finite numbers alone, and an infinite perplexity is the worst of all.
  const double value = std::max(measure(result, options_.metric, higher_is_better_),
                                std::numeric_limits<double>::lowest());
  if (!state_.best || value > *state_.best + options_.min_delta) {
    state_.best = value;
    state_.waited = 0;
  } else {
    state_.waited += options_.unit == EarlyStopOptions::Unit::epochs ? epochs : 1;
  }
  return state_.waited >= options_.patience;
}

}  // namespace frugal::train
