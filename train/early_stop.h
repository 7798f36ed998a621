// EarlyStop: whether evaluations have stopped getting better. The trainer uses it
// (TrainerOptions::early_stop); a loop of one's own may, too.
#pragma once
#include <string>

#include "train/batch_spec.h"
#include "train/run/run_state.h"

namespace frugal::train {

struct EarlyStopOptions {
  int64_t patience = 0;         // evaluations in a row without a better one that end training
  double min_delta = 0;         // a value must be better by more than this
  std::string metric = "loss";  // "loss", "accuracy" or "metric": BatchSpec::metric
};

// The measure of an evaluation, on the validation set where there is one, else on the test set.
// Higher is better: a loss and a perplexity have their sign changed.
double measure_of(const EpochResult& result, const std::string& metric, const BatchSpec& spec);

// Thread safety: none.
class EarlyStop {
 public:
  // Errors (OptionError): a patience below 1, a min_delta below 0 or not finite, an unknown metric,
  // "metric" for data that have none.
  EarlyStop(const EarlyStopOptions& options, const BatchSpec& spec);

  // Counts an evaluation. True: training should end.
  bool add(const EpochResult& result);

  // With it, another EarlyStop of the same options decides the same.
  const EarlyStopState& state() const { return state_; }
  void restore(const EarlyStopState& state) { state_ = state; }

 private:
  EarlyStopOptions options_;
  BatchSpec spec_;
  EarlyStopState state_;
};

}  // namespace frugal::train
