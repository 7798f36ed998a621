// Segmentation: a class for each pixel.
#pragma once
#include <vector>

#include "autograd/segmentation_functions.h"
#include "models/resized_module.h"
#include "train/tasks/classification.h"
#include "train/tasks/make_task.h"

namespace frugal::train {

struct SegmentationOptions {
  using Loss = PixelLoss;
  Loss loss = TaskOptions().pixel_loss;  // that is trained with
  double focal_gamma = TaskOptions().focal_gamma;
  // The weight of each class in the cross-entropy and the focal loss; empty: all are 1.
  std::vector<double> class_weights = {};
  // The factor of a second head's loss, which is of the first one's kind (models/resized_module.h).
  // Ref: torchvision's training program.
  double auxiliary_weight = 0.5;
};

// Targets [N, H, W] i64, kIgnored where a pixel does not count. The logits of a ResizedModule are
// made in parts where they are large and the loss is the cross-entropy, unless they are kept. The
// loss of an evaluation is the plain cross-entropy, which does not depend on how samples were cut
// into batches. Dice does: it is that of a batch, or of a rank's share of one, and a step has their
// mean. The terms of cross_entropy_dice are cross_entropy and dice. Beside a second head the first
// one's loss is the term out, unless it has terms, and the weighted second one is aux.
// Metrics: miou and dice, each of which has the other one and those of single classes as details
// (train/metrics/named_metrics.h); f1, macro_f1, matthews. The share of right pixels is the
// accuracy.
class Segmentation final : public Classification {
 public:
  // Errors: weights of another number than the classes, or not above 0; a gamma below 0.
  explicit Segmentation(BatchSpec spec, SegmentationOptions options = {});
  ForwardPass loss(Module& model, Batch& batch, Context& context,
                   const LossOptions& options) const override;

 protected:
  bool divides_by_weights() const override;  // not a focal loss or dice

 private:
  // The loss that is trained with; `terms`: those that make it, if it is a sum.
  Variable trained_loss(Variable output, const Tensor& target, const LossOptions& options,
                        NamedTensors& terms) const;
  ForwardPass trained_pass(Variable output, const Tensor& target, const LossOptions& options) const;
  ForwardPass pass_of_small(const ResizedModule::Small& small, const Tensor& target, bool training,
                            const LossOptions& options) const;
  // The loss of logits that are made in parts of `part` images.
  ResizedCrossEntropy loss_in_parts(const ResizedModule::Small& small, const Tensor& target,
                                    int64_t part, bool training, const LossOptions& options) const;
  Variable auxiliary_loss(const ResizedModule::Small& small, const Tensor& target,
                          const LossOptions& options) const;
  SegmentationOptions options_;
};

}  // namespace frugal::train
