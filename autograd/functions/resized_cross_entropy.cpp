#include <algorithm>
#include <limits>

#include "autograd/record.h"
#include "autograd/segmentation_functions.h"
#include "ops/checks.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/inplace.h"
#include "ops/dense/reduce.h"
#include "ops/image/interpolate.h"
#include "ops/loss/class_weights.h"
#include "ops/loss/cross_entropy.h"

namespace frugal {
namespace {

constexpr InterpolateOptions kBilinear{Interpolation::bilinear, false};

// The loss and its gradient, added over images that come in parts.
struct ResizedSums {
  Tensor top, loss, divisor, dx;

  void add(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options,
           const Tensor& class_weights, int64_t begin, int64_t end) {
    const Tensor small = x.slice(0, begin, end), at = target.slice(0, begin, end);
    const CategoryScope scope(Category::workspace);
    const ops::EntropyWeights weights({}, class_weights);
    const Tensor logits = ops::interpolate(small, at.size(1), at.size(2), kBilinear);
    const ops::CrossEntropyResult part = ops::cross_entropy(logits, at, options, weights);
    ops::copy_into(top.slice(0, begin, end), ops::argmax(logits, -1));
    accumulate(loss, part.loss);
    accumulate(divisor, class_weights.defined() ? ops::sum(ops::weights_of_rows(
                                                      at, class_weights, options.ignore_index))
                                                : ops::cast(part.counted, part.loss.dtype()));
    if (!dx.defined()) return;
    const Tensor one = Tensor::full({}, 1, part.loss.dtype(), x.device());
    const Tensor dy =
        ops::cross_entropy_backward(one, logits, at, part.lse, options, weights, true);
    ops::copy_into(dx.slice(0, begin, end),
                   ops::interpolate_backward(dy, small.shape(), kBilinear));
  }

  static void accumulate(Tensor& sum, Tensor term) {
    if (sum.defined())
      ops::accumulate(sum, term);
    else
      sum = std::move(term);
  }
};

}  // namespace

// The gradient of the small logits is the adjoint of the interpolation, applied to that of the
// large ones. It is made together with the loss, while the large logits exist, and the backward
// pass only scales it.
ResizedCrossEntropy resized_cross_entropy(const Variable& x, const Tensor& target,
                                          const CrossEntropyOptions& options,
                                          int64_t images_at_once, const Tensor& class_weights) {
  constexpr const char* kOp = "resized_cross_entropy";
  ops::check_real(kOp, "x", x.value());
  ops::check_defined(kOp, "target", target);
  const int64_t n = x.value().dim() == 4 ? x.size(0) : 0;
  FRUGAL_CHECK(n > 0 && target.dim() == 3 && target.size(0) == n && images_at_once >= 1,
               "[{}] expected x [N, h, w, C] and target [N, H, W] of at least one image, and at "
               "least one image at once, got {}, {} and {}",
               kOp, describe(x.value()), describe(target), images_at_once);
  FRUGAL_CHECK(!class_weights.defined() || class_weights.shape() == Shape{x.size(3)},
               "[{}] expected a weight for each of {} classes, got {}", kOp, x.size(3),
               class_weights.defined() ? describe(class_weights) : "none");
  CrossEntropyOptions summed = options;
  summed.sum = true;
  const Tensor in = ops::contiguous(x.value()), at = ops::contiguous(target);
  ResizedSums sums;
  if (recording({x})) sums.dx = Tensor::empty(in.shape(), in.dtype(), in.device());
  {
    const CategoryScope scope(Category::workspace);
    sums.top = Tensor::empty(at.shape(), DType::i64, in.device());
  }
  for (int64_t begin = 0; begin < n; begin += images_at_once)
    sums.add(in, at, summed, class_weights, begin, std::min(n, begin + images_at_once));
  Tensor loss = sums.loss, divisor;
  if (!options.sum) {
    // Without pixels that count the loss is NaN and the gradient, whose sum is 0, stays 0.
    const double least = class_weights.defined() ? std::numeric_limits<float>::min() : 1;
    divisor = ops::clamp(sums.divisor, least, std::numeric_limits<double>::infinity(), false).y;
    loss = ops::div(sums.loss, sums.divisor);
  }
  Variable out = record(kOp, {x}, std::move(loss), {save_whole(sums.dx), save_whole(divisor)},
                        [](const Backward& b) {
                          const Tensor factor = b.keeps(1) ? ops::div(b.dy(), b.saved(1)) : b.dy();
                          const bool mine = b.slot(0).is_sole_owner();
                          const Tensor dx = mine ? b.saved(0) : ops::clone(b.saved(0));
                          ops::scale_inplace(dx, factor);
                          return Grads{dx};
                        });
  return {std::move(out), std::move(sums.top)};
}

}  // namespace frugal
