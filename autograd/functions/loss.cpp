#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/binary_cross_entropy.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/mse.h"

namespace frugal {

// d(logits) = dy w / sum w (softmax(logits) - smoothed one-hot(target)), softmax = e^(logits -
// lse). Saves: logits, target (8 bytes a row), lse (a number a row), row_weights. The logits are
// never lossy: their exponential would turn unbiased codes into a biased gradient, enough to make
// training diverge. They are the largest tensor of a language model: backward writes over them.
Variable cross_entropy(const Variable& logits, const Tensor& target,
                       const CrossEntropyOptions& options, const Tensor& row_weights) {
  const ops::CrossEntropyResult result =
      ops::cross_entropy(logits.value(), target, options, row_weights);
  return record(
      "cross_entropy", {logits}, result.loss,
      {save_stat(logits.value()), save_index(target), save_stat(result.lse),
       save_stat(row_weights)},
      [options](const Backward& b) {
        const bool overwrite = b.slot(0).is_sole_owner();
        const Tensor x = b.saved(0);
        return Grads{ops::cross_entropy_backward(b.dy(), x, b.saved(1), b.saved(2), options,
                                                 b.saved(3), overwrite && x.is_contiguous())};
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
