// Classification: one class for each sample, each token or each pixel.
#pragma once
#include <vector>

#include "train/tasks/supervised.h"

namespace frugal::train {

// Weights of classes lie in this range: f32, in which they are applied, holds what is made of them.
constexpr double kLeastClassWeight = 1e-30, kLargestClassWeight = 1e30;

struct ClassOptions {
  // The weight of each class, or of each of several labels, while training; empty: all are 1.
  std::vector<double> class_weights = {};
};
// Errors: weights of another number than `classes`, or outside of the range above.
void check_class_weights(const ClassOptions& options, int64_t classes);

// Targets are classes, [N] or [N, ...] i64 with kIgnored where none counts, or shares of classes
// [N, C] f32 of samples that were mixed; the class with the larger share is then the right one. The
// loss is the cross-entropy. Metrics: f1, macro_f1, micro_f1, matthews, perplexity
// (train/metrics/metric_names.h).
// With weights of classes, the loss that is trained with is weighted_cross_entropy(), not for
// shares of classes or rows with weights of their own.
class Classification : public SupervisedTask {
 public:
  // Errors: those of check_class_weights().
  explicit Classification(BatchSpec spec, ClassOptions options = {});
  // Where the loss is divided by weights of classes, their sum over the targets. Errors: a target
  // without a weight.
  double weight(const Batch& batch) const override;
  void judge(const Judged& judged, ForwardPass& pass) const override;
  Variable loss_of(Judged judged, const LossOptions& options) const override;
  int64_t counted(const Tensor& target, FloatTargets floats) const override;
  Counts count(const ForwardPass& pass) const override;
  std::unique_ptr<Metric> metric() const override;
  Tensor predict(const Tensor& output) const override;  // probabilities; a row sums to 1

 protected:
  // Does the loss that is trained with divide by the weights of the targets' classes?
  virtual bool divides_by_weights() const { return !options_.class_weights.empty(); }
  // For logits [..., C]; outputs beyond the classes have the weight 1. undefined: all have.
  Tensor class_weights(const Tensor& logits) const;

 private:
  double weight_of(const Tensor& target) const;
  ClassOptions options_;
  // On CUDA, made at the first step, so that a step that is captured copies nothing from the host.
  // Elsewhere each step makes them, and takes the same memory behind a start from a checkpoint.
  mutable Tensor weights_;
};

}  // namespace frugal::train
