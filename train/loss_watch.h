// Says that the loss of a run grows as before it becomes NaN, while there is time to stop.
#pragma once
#include <cstdint>
#include <string>

#include "train/batch_spec.h"

namespace frugal::train {

// What to try when a loss or a gradient is too large, or not finite. A sentence without its end.
std::string advice_against_divergence(double rate);

// Thread safety: none. Nothing of it decides about a run, so no checkpoint keeps it.
class LossWatch {
 public:
  // spec: the task's. If outputs are chances of classes, a guess that knows nothing has the loss
  // ln(classes).
  explicit LossWatch(const BatchSpec& spec);
  // Call it after each step, with the mean loss of so many samples. It returns what to tell people,
  // once in a run, and else an empty text. It speaks when the mean over 32 samples or more is 10
  // times the larger of the guess's loss and the first step's. If no such guess is known, the limit
  // is 100 times the largest loss of the first five steps.
  std::string add(int64_t step, double loss, int64_t samples, double rate);

 private:
  double guess_;       // 0: unknown
  double usual_ = 0;   // the largest loss of the first steps
  int64_t steps_ = 0;  // seen
  double sum_ = 0;     // the sum of losses times samples since the mean was looked at
  int64_t samples_ = 0;
  bool said_ = false;
};

}  // namespace frugal::train
