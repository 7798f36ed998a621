// MetricsCsv: the table metrics.csv of a run, with a row for each epoch:
//   epoch, step             counted from 1
//   train_loss, train_accuracy
//   test_loss, test_accuracy, test_metric    empty where the epoch was not evaluated
//   lr, mean_bits, saved_bytes    those of the epoch's last step (StepReport); saved_bytes is what
//                           was live between its passes, packed tensors included
//   peak_bytes, activation_bytes    the most of the run so far; activation_bytes counts packed ones
//   seconds                 what steps have taken so far, without those that a cut made in vain
// Accuracies are empty if numbers are predicted. What is not known is empty, too.
#pragma once
#include <memory>
#include <string>

#include "apps/config/keys/config_error.h"
#include "train/trainer.h"

namespace frugal::apps {

// Thread safety: none.
class MetricsCsv {
 public:
  // Removes the rows of epochs that end after the state's step: the run goes on from there. Errors:
  // those of reading and of writing.
  MetricsCsv(std::shared_ptr<RunFolder> folder, const RunState& state);

  struct Row {
    const EpochReport& epoch;
    const StepMemory& memory;
    bool has_accuracy;
  };
  // Appends a row. Errors: full disk.
  void add(const Row& row);

 private:
  std::shared_ptr<RunFolder> folder_;
  double seconds_before_ = 0;  // what processes took that did not write it into the state
};

}  // namespace frugal::apps
