// Segmentation: a class for each pixel.
#pragma once
#include <vector>

#include "train/tasks/classification.h"

namespace frugal::train {

struct SegmentationOptions {
  // What is trained with. cross_entropy_dice is the sum of both.
  enum class Loss : uint8_t { cross_entropy, focal, dice, cross_entropy_dice };
  Loss loss = Loss::cross_entropy;
  double focal_gamma = 2;
  // Of each class, in the cross-entropy and the focal loss; empty: all are 1.
  std::vector<double> class_weights = {};
};

// Targets [N, H, W] i64, kIgnored where a pixel does not count. The logits of a ResizedModule are
// made in parts where they are large and the loss is the cross-entropy, unless they are kept. The
// loss of an evaluation is the plain cross-entropy, which does not depend on how samples were cut
// into batches. The terms of cross_entropy_dice are cross_entropy and dice.
// The metric miou is the mean of the classes' intersections over unions. Its details: dice, the
// mean of 2 tp / (2 tp + fp + fn) over the classes that occur, and, of up to 64 classes, both for
// each that occurs. The share of right pixels is the accuracy.
class Segmentation final : public Classification {
 public:
  // Errors: weights of another number than the classes, or not above 0; a gamma below 0.
  explicit Segmentation(BatchSpec spec, SegmentationOptions options = {});
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;
  // With weights of classes their sum over the pixels.
  double weight(const Batch& batch) const override;
  std::unique_ptr<Metric> metric() const override;

 private:
  Tensor class_weights(DType logits, Device device) const;  // undefined: all are 1
  ForwardPass trained_pass(Variable output, const Tensor& target, const LossOptions& options) const;
  SegmentationOptions options_;
  // Made at the first step, so that a step that is recorded copies nothing from the host.
  mutable Tensor weights_;
};

}  // namespace frugal::train
