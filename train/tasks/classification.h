// Classification: one class for each sample, each token or each pixel.
#pragma once
#include "train/tasks/supervised.h"

namespace frugal::train {

// Targets are classes, [N] or [N, ...] i64 with kIgnored where none counts, or shares of classes
// [N, C] f32 of samples that were mixed; the class with the larger share is then the right one. The
// loss is the cross-entropy. Metrics: f1, matthews.
class Classification : public SupervisedTask {
 public:
  using SupervisedTask::SupervisedTask;
  void judge(const Judged& judged, ForwardPass& pass) const override;
  Variable loss_of(Judged judged, const LossOptions& options) const override;
  int64_t counted(const Tensor& target, FloatTargets floats) const override;
  Counts count(const ForwardPass& pass) const override;
  std::unique_ptr<Metric> metric() const override;
  Tensor predict(const Tensor& output) const override;  // probabilities; a row sums to 1
};

}  // namespace frugal::train
