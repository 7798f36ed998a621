#include "ops/detection/detection_loss.h"

#include "autograd/detection_functions.h"
#include "autograd/functions/loss_gradient.h"
#include "autograd/trace.h"

namespace frugal {
namespace {

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(x).
Variable record_weighted_loss(const char* op, const Variable& x, const ops::WeightedLoss& result) {
  return record(op, {x}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) { return Grads{scaled_gradient(b)}; });
}

}  // namespace

Variable sigmoid_focal_loss(Variable logits, const Tensor& classes, const Tensor& weights,
                            const SigmoidFocalOptions& options) {
  // A trace and the owner of a leaf may read the logits later.
  const bool recorded = recording({logits});
  const bool over = recorded && logits.accumulator() == nullptr && logits.is_sole_handle() &&
                    is_sole_owner(logits.value()) && runs_as_cpu(logits.device()) &&
                    active_trace() == nullptr;
  const ops::WeightedLoss result =
      ops::sigmoid_focal(logits.value(), classes, weights, options, over);
  return record_weighted_loss("sigmoid_focal_loss", logits, result);
}

Variable smooth_l1_loss(const Variable& x, const Tensor& target, const Tensor& weights,
                        double beta) {
  return record_weighted_loss("smooth_l1_loss", x,
                              ops::smooth_l1(x.value(), target, weights, beta));
}

Variable giou_loss(const Variable& x, const Tensor& target, const Tensor& weights) {
  return record_weighted_loss("giou_loss", x, ops::giou(x.value(), target, weights));
}

Variable coded_giou_loss(const Variable& codes, const Tensor& references, const Tensor& boxes,
                         const Tensor& matches, const Tensor& weights, const BoxCoding& coding) {
  return record_weighted_loss(
      "coded_giou_loss", codes,
      ops::coded_giou(codes.value(), references, boxes, matches, weights, coding));
}

}  // namespace frugal
