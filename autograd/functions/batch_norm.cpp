#include "ops/batch_norm.h"

#include "autograd/checkpoint.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/bitmask.h"

namespace frugal {
namespace {

// Slots of every form; the mask is empty without relu.
enum Slot { kX, kWeight, kBias, kMean, kInvstd, kMask };

ops::BatchNormMoments moments_of(const Variable& x, const BatchNormStats& stats,
                                 const BatchNormOptions& options) {
  if (!options.training)
    return ops::batch_norm_running(stats.running_mean, stats.running_var, options.eps);
  // A recomputation sees the same batch again: it must not count twice.
  const bool update = !recomputing();
  return ops::batch_norm_moments(x.value(), update ? stats.running_mean : Tensor(),
                                 update ? stats.running_var : Tensor(), options);
}

// Rebuilds y without the residual: linear in x, through the exact sign where there was a relu.
Tensor rebuild(const Slots& s) {
  const ops::BatchNormMoments moments{s.unpack(kMean), s.unpack(kInvstd)};
  const ops::BatchNormParameters parameters{s.unpack(kWeight), s.unpack(kBias)};
  const Tensor mask = s.unpack(kMask);
  if (mask.defined()) return ops::batch_norm_by_mask(s.unpack(kX), moments, parameters, mask);
  return ops::batch_norm_apply(s.unpack(kX), moments, parameters, {}, false, false).y;
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
      {save(x), save(weight), save(bias), save_stat(moments.mean), save_stat(moments.invstd),
       save_mask(out.mask)},
      [training = options.training, residual_form](const Backward& b) {
        const ops::BatchNormGradients g = ops::batch_norm_backward(
            b.dy(), b.saved(kX), {b.saved(kMean), b.saved(kInvstd)}, {b.saved(kWeight), {}},
            b.saved(kMask), training, residual_form && b.needs(3));
        return Grads{g.dx, g.dweight, g.dbias, g.dresidual};
      },
      residual_form ? ReplaySpec{} : linear_replay(rebuild));
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
