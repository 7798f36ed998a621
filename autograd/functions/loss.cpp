#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/elementwise.h"
#include "ops/loss/binary_cross_entropy.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/mse.h"
#include "ops/loss/soft_cross_entropy.h"

namespace frugal {

// d(logits) = dy w / sum w (p - smoothed one-hot(target)), p = softmax(logits) = e^(logits - lse).
// Saves: target (8 bytes a row), row_weights, and what gives p. If a policy may make that lossy, p
// itself is saved, because the gradient is linear in p. (The exponential of unbiased logits is
// biased, enough to make training diverge.) Otherwise the logits and lse are saved, which needs no
// further memory: the backward pass writes over the logits. They are the largest tensor of a
// language model.
Variable cross_entropy(Variable logits, const Tensor& target, const CrossEntropyOptions& options,
                       const Tensor& row_weights) {
  const ops::CrossEntropyResult result =
      ops::cross_entropy(logits.value(), target, options, row_weights);
  const bool lossy = recording({logits}) && saves_may_be_lossy();
  const bool mine = lossy && logits.is_sole_handle() && is_sole_owner(logits.value());
  const Save kept =
      lossy ? save_output(ops::cross_entropy_probabilities(logits.value(), result.lse, mine))
            : save_whole(logits.value());
  return record(
      "cross_entropy", {logits}, result.loss,
      {kept, save_exact(target), save_whole(lossy ? Tensor() : result.lse),
       save_whole(row_weights)},
      [options](const Backward& b) {
        const Tensor lse = b.slot(2).defined() ? b.saved(2) : Tensor();
        // The logits may be read again unless they were unpacked only for this call.
        const bool sole = lse.defined() && b.slot(0).is_sole_owner();
        const Tensor x = b.saved(0);
        const bool overwrite = sole || x.storage().use_count() == 1;
        return Grads{ops::cross_entropy_backward(b.dy(), x, b.saved(1), lse, options, b.saved(3),
                                                 overwrite && x.is_contiguous())};
      });
}

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(logits).
Variable binary_cross_entropy(const Variable& logits, const Tensor& target,
                              const BinaryCrossEntropyOptions& options, const Tensor& row_weights) {
  const ops::BinaryCrossEntropyResult result =
      ops::binary_cross_entropy(logits.value(), target, options, row_weights);
  return record("binary_cross_entropy", {logits}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) {
                  return Grads{ops::binary_cross_entropy_backward(b.dy(), b.saved(0))};
                });
}

// dx = dy * gradient, linear in what is saved.  Saves: d(loss)/d(logits).
Variable soft_cross_entropy(const Variable& logits, const Tensor& target, double label_smoothing) {
  const ops::SoftCrossEntropyResult result =
      ops::soft_cross_entropy(logits.value(), target, label_smoothing);
  return record("soft_cross_entropy", {logits}, result.loss, {save_output(result.gradient)},
                [](const Backward& b) {
                  // The product with a number is the same as there.
                  return Grads{ops::binary_cross_entropy_backward(b.dy(), b.saved(0))};
                });
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
