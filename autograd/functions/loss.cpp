#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/mse.h"

namespace frugal {

// d(logits) = dy / n (softmax(logits) - smoothed one-hot(target)), softmax = e^(logits - lse).
// Saves: logits, target (8N bytes), lse (N numbers). The logits are never lossy: their exponential
// would turn unbiased codes into a biased gradient, enough to make training diverge.
Variable cross_entropy(const Variable& logits, const Tensor& target,
                       const CrossEntropyOptions& options) {
  const ops::CrossEntropyResult result = ops::cross_entropy(logits.value(), target, options);
  return record("cross_entropy", {logits}, result.loss,
                {save_stat(logits.value()), save_index(target), save_stat(result.lse)},
                [options](const Backward& b) {
                  return Grads{ops::cross_entropy_backward(b.dy(), b.saved(0), b.saved(1),
                                                           b.saved(2), options)};
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
