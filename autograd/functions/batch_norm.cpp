#include "ops/image/batch_norm.h"

#include <algorithm>
#include <optional>

#include "autograd/checkpoint.h"
#include "autograd/functions.h"
#include "autograd/record.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// The slots of every form. The mask is empty without relu. The residual is only there for a recipe.
enum Slot { kX, kWeight, kBias, kMean, kInvstd, kMask, kResidual };
constexpr Use kUse = Use::normalized({.input = 1, .weight = kWeight, .invstd = kInvstd});

ops::BatchNormMoments moments_of(const Variable& x, const BatchNormStats& stats,
                                 const BatchNormOptions& options) {
  if (!options.training)
    return ops::batch_norm_running(stats.running_mean, stats.running_var, options.eps);
  // A recomputation sees the same batch again, so it must not update the running statistics twice.
  const bool update = !recomputing();
  return ops::batch_norm_moments(x.value(), update ? stats.running_mean : Tensor(),
                                 update ? stats.running_var : Tensor(), options);
}

// Rebuilds y: linear in x and in the residual, through the exact sign if there was a relu. The
// residual comes first, because it may have to be rebuilt, too.
Tensor rebuild(const Slots& s) {
  const Tensor residual = s.unpack(kResidual);
  const ops::BatchNormMoments moments{s.unpack(kMean), s.unpack(kInvstd)};
  const ops::BatchNormParameters parameters{s.unpack(kWeight), s.unpack(kBias)};
  if (!residual.defined()) {
    const Tensor affine = ops::batch_norm_affine(moments, parameters);
    const Tensor y = s.run({PackedPass::Affine{affine}}, kX, kMask);
    if (y.defined()) return y;
  }
  const Tensor mask = s.unpack(kMask);
  const Tensor x = s.unpack(kX);
  if (mask.defined()) return ops::batch_norm_by_mask(x, moments, parameters, residual, mask);
  return ops::batch_norm_apply(x, moments, parameters, residual, false, false).y;
}

// The mask that follows from rebuilt values; it is not the exact one.
Tensor rebuild_mask(const Slots& s) {
  const Tensor residual = s.unpack(kResidual);
  return ops::batch_norm_apply(s.unpack(kX), {s.unpack(kMean), s.unpack(kInvstd)},
                               {s.unpack(kWeight), s.unpack(kBias)}, residual, true, true)
      .mask;
}

// Both passes of the gradient, directly on the codes of x. Returns nothing if x has to be unpacked.
std::optional<Grads> backward_of_codes(const Backward& b, const Tensor& dy, bool overwrite,
                                       const ops::BatchNormMoments& moments,
                                       const ops::BatchNormParameters& parameters, bool training,
                                       bool want_residual) {
  if (dy.device().type != DeviceType::cuda || dy.numel() == 0) return {};
  const Tensor gradient = ops::contiguous(dy);
  const auto fresh = [&] { return Tensor::empty(dy.shape(), dy.dtype(), dy.device()); };
  const bool mine = overwrite || gradient.storage() != dy.storage();
  Tensor g;
  if (want_residual) g = mine ? gradient : fresh();
  const ops::BatchNormSums sums = ops::batch_norm_backward_sums(
      gradient,
      [&](const Tensor& mean, const Tensor& partial, int64_t chunk_rows) {
        return b.run({PackedPass::Sums{gradient, mean, partial, chunk_rows}, g}, kX, kMask);
      },
      moments, parameters, training);
  if (!sums.dweight.defined()) return {};
  Grads grads{{}, sums.dweight, sums.dbias, g};
  if (overwrite) dy.bump_version();
  if (!b.needs(0)) return grads;
  const int64_t n = dy.size(0);
  if (want_residual) {
    // Both are large: x's waits until somebody takes it.
    grads[0] =
        Gradient(dy, n,
                 [x = b.slot(kX), n, g, affine = sums.affine](int64_t begin, int64_t end,
                                                              const Tensor& out) {
                   const Tensor part = g.slice(0, begin, end);
                   const Rows rows{begin, end, n};
                   if (!run_over(x, {PackedPass::Combine{part, affine}, out, rows}).defined())
                     ops::batch_norm_backward_input_into(out, part, x.unpack_rows(rows), affine);
                 });
    return grads;
  }
  const Tensor dx = mine ? gradient : fresh();
  const bool done = b.run({PackedPass::Combine{gradient, sums.affine}, dx}, kX, kMask);
  FRUGAL_ASSERT(done);  // as the sums were
  grads[0] = dx;
  return grads;
}

// The gradient if x was not saved, because neither the weight's gradient nor the statistics need
// it.
Grads backward_without_x(const Backward& b, bool want_residual) {
  Tensor g = ops::contiguous(b.take_dy());
  if (b.keeps(kMask)) g = ops::select_by_mask(g, b.saved(kMask), 0);
  Grads grads(4);
  if (b.needs(0)) {
    const Tensor invstd = b.saved(kInvstd);
    const Tensor zero = Tensor::zeros(invstd.shape(), invstd.dtype(), invstd.device());
    grads[0] = ops::batch_norm_apply(g, {zero, invstd}, {b.saved(kWeight), {}}, {}, false, false).y;
  }
  if (b.needs(2)) grads[2] = ops::linear_backward_bias(g);
  if (want_residual) grads[3] = g;
  return grads;
}

Grads backward(const Backward& b, bool training, bool residual_form) {
  const bool want_residual = residual_form && b.needs(3);
  if (!b.keeps(kX)) return backward_without_x(b, want_residual);
  const Tensor dy = b.take_dy();
  const bool overwrite = is_sole_owner(dy);
  const ops::BatchNormMoments moments{b.saved(kMean), b.saved(kInvstd)};
  const ops::BatchNormParameters parameters{b.saved(kWeight), {}};
  if (auto grads =
          backward_of_codes(b, dy, overwrite, moments, parameters, training, want_residual))
    return std::move(*grads);
  const int64_t n = dy.size(0), all = std::max<int64_t>(n, 1);
  int64_t step = all;
  // Two passes take x. If slices of x would have to be rebuilt twice, x is taken whole.
  if (!b.is_recipe(kX) && dy.numel() > 0)
    step = b.slice_items(kX, dy.numel() / all * static_cast<int64_t>(size_of(dy.dtype())),
                         ops::batch_norm_slice_unit(dy.shape(), dy.device()));
  ops::BatchNormGradients g;
  if (step < n && b.has_rows(kMask, step, n)) {
    ops::BatchNormSlice masks;
    if (b.keeps(kMask))
      masks = [&](int64_t begin, int64_t end) { return b.saved_rows(kMask, begin, end, n); };
    const ops::BatchNormSlice xs = [x = b.slot(kX), n](int64_t begin, int64_t end) {
      return x.unpack_rows({begin, end, n});
    };
    if (want_residual && b.needs(0) && b.has_rows(kX, 1, n)) {
      // The gradients of the residual and of x are both large, so the gradient of x is made only
      // when somebody takes it.
      const ops::BatchNormSums sums = ops::batch_norm_backward_sums(
          dy, xs, moments, parameters, masks, step, training, overwrite);
      const Gradient dx(
          dy, step,
          [xs, g = sums.g, affine = sums.affine](int64_t begin, int64_t end, const Tensor& out) {
            ops::batch_norm_backward_input_into(out, g.slice(0, begin, end), xs(begin, end),
                                                affine);
          });
      return {dx, sums.dweight, sums.dbias, sums.g};
    }
    g = ops::batch_norm_backward(dy, xs, moments, parameters, masks, step, training, want_residual,
                                 overwrite);
  } else {
    g = ops::batch_norm_backward(dy, b.saved(kX), moments, parameters, b.saved(kMask), training,
                                 want_residual, overwrite);
  }
  return {g.dx, g.dweight, g.dbias, g.dresidual};
}

Variable normalize(const char* op, const Variable& x, const Variable& residual,
                   const Variable& weight, const Variable& bias, const BatchNormStats& stats,
                   const BatchNormOptions& options, bool relu, bool over_residual = false) {
  const Variables inputs{x, weight, bias, residual};
  const ops::BatchNormMoments moments = moments_of(x, stats, options);
  const ops::BatchNormParameters parameters{weight.defined() ? weight.value() : Tensor(),
                                            bias.defined() ? bias.value() : Tensor()};
  const bool residual_form = residual.defined();
  const bool needs_x = weight.requires_grad() || (options.training && x.requires_grad());
  const Tensor added = residual_form ? residual.value() : Tensor();
  const Tensor affine = ops::batch_norm_affine(x.value(), moments, parameters, added);
  const PackedPass pass{
      PackedPass::Affine{affine, residual_form ? ops::contiguous(added) : Tensor(), relu},
      over_residual ? added : Tensor()};
  const PassedSave out = save_and_run(
      op, inputs,
      // Where the relu is 0, x counts only through the statistics of the whole batch.
      save_if(needs_x, x).with_sign({}, 0).with_use(kUse), pass,
      [&](PackedPass& made) {
        const ops::BatchNormOutput apply = ops::batch_norm_apply(
            x.value(), affine, added, relu, relu && recording(inputs), over_residual);
        made.out = apply.y;
        made.kept = apply.mask;
      },
      needs_x ? ReplayFn(rebuild_mask) : ReplayFn());
  const auto describe = [&](TracedOp& t) {
    t.tensor(stats.running_mean);
    t.tensor(stats.running_var);
    t.set("eps", options.eps);
    t.set("training", options.training);
  };
  const Variable y = record(
      {op, describe}, inputs, out.y,
      {out.x, save(weight), save(bias), save_whole(moments.mean), save_whole(moments.invstd),
       out.sign, residual_form && needs_x ? for_replay(residual) : Save{}},
      [training = options.training, residual_form](const Backward& b) {
        return backward(b, training, residual_form);
      },
      needs_x ? linear_replay(rebuild, true) : ReplaySpec{});
  // The slot of the residual was found by its version, and y is another tensor in the same place.
  if (over_residual) out.y.bump_version();
  return y;
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

Variable batch_norm_add_relu(const Variable& x, Variable residual, const Variable& weight,
                             const Variable& bias, const BatchNormStats& stats,
                             const BatchNormOptions& options) {
  const bool mine = residual.is_sole_handle() && is_sole_owner(residual.value());
  return normalize("batch_norm_add_relu", x, residual, weight, bias, stats, options, true, mine);
}

}  // namespace frugal
