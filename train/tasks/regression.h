// Regression: numbers to predict.
#pragma once
#include "train/tasks/supervised.h"

namespace frugal::train {

// Targets [N, C] f32. The loss is the mean squared error; no value is ever right. Metrics: r2,
// mse, mae.
class Regression : public SupervisedTask {
 public:
  using SupervisedTask::SupervisedTask;
  void judge(const Judged& judged, ForwardPass& pass) const override;
  Variable loss_of(Judged judged, const LossOptions& options) const override;
  int64_t counted(const Tensor& target, FloatTargets floats) const override;
  Counts count(const ForwardPass& pass) const override;
  std::unique_ptr<Metric> metric() const override;
};

}  // namespace frugal::train
