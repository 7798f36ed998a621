#include "autograd/functions.h"
#include "autograd/functions/loss_gradient.h"
#include "autograd/segmentation_functions.h"
#include "ops/dense/elementwise.h"
#include "ops/loss/binary_cross_entropy.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/dice.h"
#include "ops/loss/focal.h"
#include "ops/loss/mse.h"
#include "ops/loss/soft_cross_entropy.h"

namespace frugal {

namespace {

// d(logits) = dy w / sum w (p - smoothed one-hot(target)), p = softmax(logits) = e^(logits - lse).
// Saves: target (8 bytes a row), weights (of rows, or of classes), and what gives p. If a policy
// may make that lossy, p itself is saved, because the gradient is linear in p. (The exponential of
// unbiased logits is biased, enough to make training diverge.) Otherwise the logits and lse are
// saved, which needs no further memory: the backward pass writes over the logits. They are the
// largest tensor of a language model.
Variable entropy(const char* op, Variable logits, const Tensor& target,
                 const CrossEntropyOptions& options, const Tensor& weights, bool of_classes) {
  const auto as_weights = [of_classes](const Tensor& given) {
    return of_classes ? ops::EntropyWeights({}, given) : ops::EntropyWeights(given);
  };
  const ops::CrossEntropyResult result =
      ops::cross_entropy(logits.value(), target, options, as_weights(weights));
  const bool lossy = recording({logits}) && saves_may_be_lossy();
  const bool mine = lossy && logits.is_sole_handle() && is_sole_owner(logits.value());
  const Save kept =
      lossy ? save_output(ops::cross_entropy_probabilities(logits.value(), result.lse, mine))
            : save_whole(logits.value());
  return record(
      op, {logits}, result.loss,
      {kept, save_exact(target), save_whole(lossy ? Tensor() : result.lse), save_whole(weights)},
      [options, as_weights](const Backward& b) {
        const Tensor lse = b.slot(2).defined() ? b.saved(2) : Tensor();
        // The logits may be read again unless they were unpacked only for this call.
        const bool sole = lse.defined() && b.slot(0).is_sole_owner();
        const Tensor x = b.saved(0), at = b.saved(1);
        const bool overwrite = sole || x.storage().use_count() == 1;
        return Grads{ops::cross_entropy_backward(
            b.dy(), x, at, lse, options, as_weights(b.saved(3)), overwrite && x.is_contiguous())};
      });
}

}  // namespace

Variable cross_entropy(Variable logits, const Tensor& target, const CrossEntropyOptions& options,
                       const Tensor& row_weights) {
  return entropy("cross_entropy", std::move(logits), target, options, row_weights, false);
}

Variable weighted_cross_entropy(Variable logits, const Tensor& target, const Tensor& class_weights,
                                const CrossEntropyOptions& options) {
  const char* const op = "weighted_cross_entropy";
  FRUGAL_CHECK(class_weights.defined() && logits.value().dim() >= 1 &&
                   class_weights.shape() == Shape{logits.size(-1)},
               "[{}] expected a weight for each of {} classes, got {}", op, logits.size(-1),
               class_weights.defined() ? describe(class_weights) : "none");
  return entropy(op, std::move(logits), target, options, class_weights, true);
}

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(logits).
Variable dice_loss(const Variable& logits, const Tensor& target, const DiceOptions& options) {
  const ops::DiceResult result = ops::dice_loss(logits.value(), target, options);
  return record("dice_loss", {logits}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) { return Grads{scaled_gradient(b)}; });
}

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(logits).
Variable focal_cross_entropy(const Variable& logits, const Tensor& target,
                             const FocalOptions& options, const Tensor& class_weights) {
  const ops::FocalResult result =
      ops::focal_cross_entropy(logits.value(), target, options, class_weights);
  return record("focal_cross_entropy", {logits}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) { return Grads{scaled_gradient(b)}; });
}

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(logits).
Variable binary_cross_entropy(const Variable& logits, const Tensor& target,
                              const BinaryCrossEntropyOptions& options, const Tensor& row_weights) {
  const ops::BinaryCrossEntropyResult result =
      ops::binary_cross_entropy(logits.value(), target, options, row_weights);
  return record("binary_cross_entropy", {logits}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) { return Grads{scaled_gradient(b)}; });
}

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(logits).
Variable soft_cross_entropy(const Variable& logits, const Tensor& target, double label_smoothing) {
  const ops::SoftCrossEntropyResult result =
      ops::soft_cross_entropy(logits.value(), target, label_smoothing);
  return record("soft_cross_entropy", {logits}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) { return Grads{scaled_gradient(b)}; });
}

// y = mean (x - target)^2, dx = 2 dy (x - target) / n = -d(target).  Saves: the difference.
Variable mse_loss(const Variable& x, const Variable& target) {
  const ops::MseResult result = ops::mse(x.value(), target.value());
  return record(
      "mse_loss", {x, target}, result.loss, {save_output(result.difference)},
      [](const Backward& b) {
        const Tensor dx = ops::mse_backward(b.dy(), b.saved(0));
        return Grads{b.needs(0) ? dx : Tensor(), b.needs(1) ? ops::affine(dx, -1, 0) : Tensor()};
      });
}

}  // namespace frugal
