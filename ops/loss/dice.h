// Dice loss of logits and class indices: the overlap of each class's probabilities with its region.
#pragma once
#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct DiceResult {
  Tensor loss;      // [] like logits, f32 for bf16
  Tensor gradient;  // like logits: d(loss)/d(logits), which backward needs
};

// logits [..., C] f32, bf16 or f64, which CUDA has not, with one row for each target [...] i64.
// With p = softmax(logits), y the one-hot targets, s = options.smooth and sums over all rows that
// are not ignored,
//   loss = 1 - 1 / C sum_c (2 sum p_c y_c + s) / (sum p_c + sum y_c + s)
// Without rows that count the loss is 0, and so is its gradient. Nothing of the logits' size is
// allocated but the gradient.
// Errors: a target outside [0, C) that is not ignored (on CUDA the loss is NaN); smooth that is not
// above 0; shapes or dtypes that do not fit.
// Ref: Milletari et al. 2016 (V-Net), with sums instead of sums of squares.
DiceResult dice_loss(const Tensor& logits, const Tensor& target, const DiceOptions& options = {});
// `gradient` [rows, C] holds the probabilities and becomes the gradient. target [rows].
void dice_kernel(Cpu, const Tensor& gradient, const Tensor& target, const Tensor& loss,
                 const DiceOptions& options);
void dice_kernel(Cuda, const Tensor& gradient, const Tensor& target, const Tensor& loss,
                 const DiceOptions& options);

}  // namespace frugal::ops
