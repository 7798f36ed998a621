// SeveralLabels: each class of a sample is a question of its own, answered with yes or no.
#pragma once
#include "train/tasks/classification.h"

namespace frugal::train {

// Targets [N, C] f32 of 0 and 1, and kIgnored where an answer is not known. The loss is the mean
// binary cross-entropy of the answers that are known. Metric: micro_f1.
class SeveralLabels : public SupervisedTask {
 public:
  // Weights of classes are those of the labels' losses while training; the loss stays the mean over
  // samples and labels (PyTorch's MultiLabelSoftMarginLoss). Not for rows with weights of their
  // own.
  explicit SeveralLabels(BatchSpec spec, ClassOptions options = {});
  Batch place(Batch batch, const Module& model) const override;
  void judge(const Judged& judged, ForwardPass& pass) const override;
  Variable loss_of(Judged judged, const LossOptions& options) const override;
  int64_t counted(const Tensor& target, FloatTargets floats) const override;
  Counts count(const ForwardPass& pass) const override;
  std::unique_ptr<Metric> metric() const override;
  Tensor predict(const Tensor& output) const override;  // each label's probability

 private:
  Tensor label_weights(int64_t rows, DType dtype, Device device) const;
  ClassOptions options_;
  mutable Tensor weights_;  // on CUDA, for the last number of rows (train/tasks/classification.h)
};

}  // namespace frugal::train
