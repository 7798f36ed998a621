// Differentiable functions for networks that give a class to each pixel: dropout of whole channels,
// and losses. Each function's formula and what it saves stand in its .cpp (autograd/functions/).
#pragma once
#include "autograd/variable.h"
#include "core/rng.h"
#include "ops/options.h"

namespace frugal {

// x [N, ..., C] -> the same shape: sets whole channels of a sample to 0 with probability p and
// scales the others by 1/(1-p). Saves: the key, 16 bytes. Recipe: linear, where x has one.
// Errors: p outside [0, 1]; fewer than two axes. Ref: Tompson et al. 2015.
Variable dropout2d(const Variable& x, double p, RngKey key);

// ---- losses (functions/loss.cpp): logits [..., C], target [...] i64 with options.ignore_index
// where a row does not count -> scalar. class_weights [C]: f32 beside bf16 logits, else of the
// dtype of the logits.

// cross_entropy() with a weight for each class: the sum of w_t l over the sum of w_t, or the sum
// alone. The term of label smoothing takes each class's own weight: see ops/loss/cross_entropy.h.
// Saves: as cross_entropy(), and the weights of the classes instead of those of rows. Errors: those
// of cross_entropy().
Variable weighted_cross_entropy(Variable logits, const Tensor& target, const Tensor& class_weights,
                                const CrossEntropyOptions& options = {});
// 1 minus the mean over the classes of (2 sum p y + s) / (sum p + sum y + s), with p = softmax and
// sums over all rows that count. Saves: d(loss)/d(logits). See ops/loss/dice.h.
Variable dice_loss(const Variable& logits, const Tensor& target, const DiceOptions& options = {});
// The mean or sum over the rows that count of -w_t (1 - p_t)^gamma log p_t; class_weights may be
// undefined. Saves: d(loss)/d(logits). See ops/loss/focal.h.
Variable focal_cross_entropy(const Variable& logits, const Tensor& target,
                             const FocalOptions& options = {}, const Tensor& class_weights = {});

// cross_entropy(interpolate(x, H, W), target) of x [N, h, w, C] and target [N, H, W] i64, bilinear
// with corners not aligned. With class_weights [C], weighted_cross_entropy() instead. It makes
// `images_at_once` images of logits at a time, so that the logits of all pixels are never all in
// memory. `top` [N, H, W] i64 is the class of each pixel's highest logit. Saves: the gradient of x,
// which the forward pass makes, and the number of pixels that count (or their weights' sum); no
// tensor of the size of the target. Errors: shapes that do not fit; no images; images_at_once below
// 1; those of the losses.
struct ResizedCrossEntropy {
  Variable loss;
  Tensor top;
};
ResizedCrossEntropy resized_cross_entropy(const Variable& x, const Tensor& target,
                                          const CrossEntropyOptions& options,
                                          int64_t images_at_once, const Tensor& class_weights = {});

}  // namespace frugal
