// Segmentation: a class for each pixel.
#pragma once
#include "train/tasks/classification.h"

namespace frugal::train {

// Targets [N, H, W] i64, kIgnored where a pixel does not count. The metric miou is the mean of the
// classes' intersections over unions. Its details: dice, the mean of 2 tp / (2 tp + fp + fn) over
// the classes that occur, and, of up to 64 classes, both for each that occurs. The share of right
// pixels is the accuracy.
class Segmentation final : public Classification {
 public:
  using Classification::Classification;
  std::unique_ptr<Metric> metric() const override;
};

}  // namespace frugal::train
