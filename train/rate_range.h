// The learning-rate range test: the rate rises from step to step, and the losses show which rates
// train. Ref: Smith 2015, section 3.3.
#pragma once
#include <optional>
#include <vector>

#include "train/trainer.h"

namespace frugal::train {

struct RateRangeOptions {
  double first = 1e-6, last = 10;  // rates of the first and the last step; it rises exponentially
  int64_t steps = 100;
  // The test ends when the smoothed loss is so many times its lowest. Losses that may be below 0
  // (Task::has_loss_of_at_least_0()) have no such factor: there it ends when the loss has risen by
  // (divergence - 1) times the larger of its lowest and what the first steps have, without signs.
  double divergence = 4;
};

struct RateRange {
  struct Point {
    double rate = 0, loss = 0, smoothed = 0;
  };
  std::vector<Point> points;        // a step each
  bool diverged = false;            // the loss rose as `divergence` says, or was not finite
  bool interrupted = false;         // by TrainerOptions::stop
  std::optional<double> lowest_at;  // the rate with the lowest smoothed loss
  std::optional<double> suggested;  // a third of it; nothing: the loss never fell
};

// Trains as `options` say, but without evaluations, checkpoints and ends of their own, with rates
// of the test in place of a schedule. `smoothed` is a mean over neighbouring steps on both sides,
// so it does not lag. Afterwards model and optimizer are useless: make others for training.
// Errors: rates or steps that make no range; those of Trainer, but a loss that is not finite ends
// the test.
RateRange find_rate(Module& model, Optimizer& optimizer, data::BatchSource& batches,
                    TrainerOptions options, const RateRangeOptions& range = {});

}  // namespace frugal::train
