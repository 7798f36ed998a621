#include "ops/batch_norm.h"

#include "autograd/checkpoint.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/bitmask.h"

namespace frugal {
namespace {

// Slots of every form; the mask is empty without relu, the residual but for a recipe.
enum Slot { kX, kWeight, kBias, kMean, kInvstd, kMask, kResidual };

ops::BatchNormMoments moments_of(const Variable& x, const BatchNormStats& stats,
                                 const BatchNormOptions& options) {
  if (!options.training)
    return ops::batch_norm_running(stats.running_mean, stats.running_var, options.eps);
  // A recomputation sees the same batch again: it must not count twice.
  const bool update = !recomputing();
  return ops::batch_norm_moments(x.value(), update ? stats.running_mean : Tensor(),
                                 update ? stats.running_var : Tensor(), options);
}

// Rebuilds y: linear in x and in the residual, through the exact sign where there was a relu. The
// residual comes first: it may have to be rebuilt too.
Tensor rebuild(const Slots& s) {
  const Tensor residual = s.unpack(kResidual), mask = s.unpack(kMask);
  const ops::BatchNormMoments moments{s.unpack(kMean), s.unpack(kInvstd)};
  const ops::BatchNormParameters parameters{s.unpack(kWeight), s.unpack(kBias)};
  const Tensor x = s.unpack(kX);
  if (mask.defined()) return ops::batch_norm_by_mask(x, moments, parameters, residual, mask);
  return ops::batch_norm_apply(x, moments, parameters, residual, false, false).y;
}

// The mask that rebuilt values give: not the exact one.
Tensor rebuild_mask(const Slots& s) {
  const Tensor residual = s.unpack(kResidual);
  return ops::batch_norm_apply(s.unpack(kX), {s.unpack(kMean), s.unpack(kInvstd)},
                               {s.unpack(kWeight), s.unpack(kBias)}, residual, true, true)
      .mask;
}

Variable normalize(const char* op, const Variable& x, const Variable& residual,
                   const Variable& weight, const Variable& bias, const BatchNormStats& stats,
                   const BatchNormOptions& options, bool relu) {
  const Variables inputs{x, weight, bias, residual};
  const ops::BatchNormMoments moments = moments_of(x, stats, options);
  const ops::BatchNormParameters parameters{weight.defined() ? weight.value() : Tensor(),
                                            bias.defined() ? bias.value() : Tensor()};
  const bool residual_form = residual.defined();
  const ops::BatchNormOutput out = ops::batch_norm_apply(
      x.value(), moments, parameters, residual_form ? residual.value() : Tensor(), relu,
      relu && recording(inputs));
  return record(
      op, inputs, out.y,
      // Where the relu is 0, x counts only through the statistics of the whole batch.
      {save(x).with_sign(out.mask, 0), save(weight), save(bias), save_stat(moments.mean),
       save_stat(moments.invstd), save_sign(out.mask, rebuild_mask),
       residual_form ? for_replay(residual) : Save{}},
      [training = options.training, residual_form](const Backward& b) {
        const ops::BatchNormGradients g = ops::batch_norm_backward(
            b.dy(), b.saved(kX), {b.saved(kMean), b.saved(kInvstd)}, {b.saved(kWeight), {}},
            b.saved(kMask), training, residual_form && b.needs(3));
        return Grads{g.dx, g.dweight, g.dbias, g.dresidual};
      },
      linear_replay(rebuild));
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& weight, const Variable& bias,
                    const BatchNormStats& stats, const BatchNormOptions& options) {
  return normalize("batch_norm", x, {}, weight, bias, stats, options, false);
}

Variable batch_norm_relu(const Variable& x, const Variable& weight, const Variable& bias,
                         const BatchNormStats& stats, const BatchNormOptions& options) {
  return normalize("batch_norm_relu", x, {}, weight, bias, stats, options, true);
}

Variable batch_norm_add_relu(const Variable& x, const Variable& residual, const Variable& weight,
                             const Variable& bias, const BatchNormStats& stats,
                             const BatchNormOptions& options) {
  return normalize("batch_norm_add_relu", x, residual, weight, bias, stats, options, true);
}

}  // namespace frugal
