// SeveralLabels: each class of a sample is a question of its own, answered with yes or no.
#pragma once
#include "train/tasks/supervised.h"

namespace frugal::train {

// Targets [N, C] f32 of 0 and 1, kIgnored in rows that do not count. The loss is the mean binary
// cross-entropy. Metric: micro_f1.
class SeveralLabels : public SupervisedTask {
 public:
  using SupervisedTask::SupervisedTask;
  Batch place(Batch batch, const Module& model) const override;
  void judge(const Judged& judged, ForwardPass& pass) const override;
  Variable loss_of(Judged judged, const LossOptions& options) const override;
  int64_t counted(const Tensor& target, FloatTargets floats) const override;
  Counts count(const ForwardPass& pass) const override;
  std::unique_ptr<Metric> metric() const override;
  Tensor predict(const Tensor& output) const override;  // each label's probability
};

}  // namespace frugal::train
