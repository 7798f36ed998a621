// EarlyStop: whether evaluations have stopped getting better. The trainer uses it
// (TrainerOptions::early_stop); a loop of one's own may, too.
#pragma once
#include <string>
#include <vector>

#include "core/option.h"

#include "train/run/run_state.h"
#include "train/task.h"

namespace frugal::train {

struct EarlyStopOptions {
  // Evaluations in a row without a better one, or epochs since the best one, that end training; 0:
  // training does not end so.
  int64_t patience = 0;
  double min_delta = 0;         // a value must be better by more than this
  std::string metric = "loss";  // "loss", "accuracy" or "metric": BatchSpec::metric
  // What the patience counts.
  enum class Unit : uint8_t { evaluations, epochs } unit = Unit::evaluations;

  static std::vector<by_name::Option<EarlyStopOptions>> list();
};

// The measure of an evaluation, on the validation set where there is one, else on the test set.
// Higher is better: a loss, and a metric that should fall, have their sign changed. which: as
// EarlyStopOptions::metric; "metric" is the accuracy where there is no metric. A metric
// that is no number is the worst.
double measure_of(const EpochResult& result, const std::string& which, const Task& task);

// Thread safety: none.
class EarlyStop {
 public:
  // Errors (OptionError): a patience below 1, a min_delta below 0 or not finite, an unknown metric,
  // "metric" or "accuracy" for data that have none, "loss" where evaluations have none.
  EarlyStop(const EarlyStopOptions& options, const Task& task);

  // Counts an evaluation, `epochs` after the one before. True: training should end.
  bool add(const EpochResult& result, int64_t epochs = 1);

  // With it, another EarlyStop of the same options decides the same.
  const EarlyStopState& state() const { return state_; }
  void restore(const EarlyStopState& state) { state_ = state; }

 private:
  EarlyStopOptions options_;
  bool higher_is_better_;  // the task's metric
  EarlyStopState state_;
};

}  // namespace frugal::train
