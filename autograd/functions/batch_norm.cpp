#include "ops/image/batch_norm.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "autograd/checkpoint.h"
#include "autograd/functions.h"
#include "autograd/functions/conv.h"
#include "autograd/node.h"
#include "autograd/saved_entry.h"
#include "autograd/trace.h"
#include "core/integers.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/dense/matmul.h"
#include "ops/image/conv2d.h"

namespace frugal {
namespace {

// The slots of every form. The mask is empty without relu. The residual is only there for a recipe.
enum Slot { kX, kWeight, kBias, kMean, kInvstd, kMask, kResidual };
constexpr Use kUse =
    Use::normalized({.input = 1, .weight = kWeight, .invstd = kInvstd, .mask = kMask});

ops::BatchNormMoments moments_of(const Variable& x, const BatchNormStats& stats,
                                 const BatchNormOptions& options) {
  if (!options.training)
    return ops::batch_norm_running(stats.running_mean, stats.running_var, options.eps);
  // A recomputation sees the same batch again, so it must not update the running statistics twice.
  const bool update = !recomputing();
  return ops::batch_norm_moments(x.value(), update ? stats.running_mean : Tensor(),
                                 update ? stats.running_var : Tensor(), options);
}

// A mask of one row has the elements of a slice of x in no slice of its own. It is kept so that
// each slice takes all of it. On CUDA, tensors are taken whole.
Save save_rectified(const Variable& x, Save sign) {
  if (sign.kept.defined() || !sign.value.defined() || !runs_as_cpu(x.device()) ||
      ops::bitmask_layout(x.shape()).by_rows)
    return sign;
  return save_whole(sign.value);
}
bool has_one_row(const SavedTensor& mask) { return mask.defined() && mask.role() == Role::whole; }

// Writes 0 where the mask of one row is clear, to the rows of y that are being rebuilt.
void select_rebuilt(const Tensor& y, const Tensor& mask) {
  const Rows& rows = rebuilt_rows();
  if (rows.of == 0)
    ops::select_by_mask_over(y, mask, 0);
  else if (y.numel() > 0)
    ops::select_part_by_mask(y, mask, rows.begin * (y.numel() / y.size(0)));
}

// Rebuilds y: linear in x and in the residual, through the exact sign if there was a relu. The
// residual comes first, because it may have to be rebuilt, too.
Tensor rebuild(const Slots& s) {
  const Tensor residual = s.unpack(kResidual);
  const ops::BatchNormMoments moments{s.unpack(kMean), s.unpack(kInvstd)};
  const ops::BatchNormParameters parameters{s.unpack(kWeight), s.unpack(kBias)};
  PackedPass::Affine pass{ops::batch_norm_affine(moments, parameters)};
  if (residual.defined()) pass.residual = ops::contiguous(residual);
  if (has_one_row(s[kMask])) {
    Tensor y = s.run({pass}, kX);
    if (!y.defined())
      y = ops::batch_norm_apply(s.unpack(kX), moments, parameters, residual, false, false).y;
    select_rebuilt(y, s.unpack(kMask));
    return y;
  }
  const Tensor y = s.run({pass}, kX, kMask);
  if (y.defined()) return y;
  const Tensor mask = s.unpack(kMask);
  const Tensor x = s.unpack(kX);
  if (mask.defined()) return ops::batch_norm_by_mask(x, moments, parameters, residual, mask);
  return ops::batch_norm_apply(x, moments, parameters, residual, false, false).y;
}

// Both passes of the gradient, directly on the codes of x. `mask`: the slot of the mask, or
// negative. Returns nothing if x has to be unpacked.
std::optional<Grads> backward_of_codes(const Backward& b, const Tensor& dy, bool overwrite,
                                       int mask, const ops::BatchNormMoments& moments,
                                       const ops::BatchNormParameters& parameters, bool training,
                                       bool want_residual) {
  if (dy.numel() == 0) return {};
  const Tensor gradient = ops::contiguous(dy);
  const auto fresh = [&] { return Tensor::empty(dy.shape(), dy.dtype(), dy.device()); };
  const bool mine = overwrite || gradient.storage() != dy.storage();
  Tensor g;
  if (want_residual) g = mine ? gradient : fresh();
  const ops::BatchNormSums sums = ops::batch_norm_backward_sums(
      gradient,
      [&](const Tensor& mean, const Tensor& partial, int64_t chunk_rows) {
        return b.run({PackedPass::Sums{gradient, mean, partial, chunk_rows}, g}, kX, mask);
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
  const bool done = b.run({PackedPass::Combine{gradient, sums.affine}, dx}, kX, mask);
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

// How many items of x, whose items have so many elements, are taken at once.
int64_t slice_step(const Backward& b, const Shape& shape, DType dtype, Device device) {
  const int64_t all = std::max<int64_t>(shape[0], 1);
  // Two passes take x. If slices of x would have to be rebuilt twice, x is taken whole.
  if (b.is_recipe(kX) || shape.numel() == 0) return all;
  return b.slice_items(kX, shape.numel() / all * static_cast<int64_t>(size_of(dtype)),
                       ops::batch_norm_slice_unit(shape, device));
}

// The gradients for a dy that comes in slices and is never whole. Both passes ask for it, the
// second one when somebody takes dx. Returns nothing, and leaves dy, if x has to be taken whole.
std::optional<Grads> backward_of_slices(const Backward& b, const Gradient& dy, bool training) {
  const int64_t n = dy.shape()[0], step = slice_step(b, dy.shape(), dy.dtype(), dy.device());
  if (!runs_as_cpu(dy.device()) || step >= n || !b.has_rows(kMask, step, n)) return {};
  const ops::BatchNormSlice rows = [dy](int64_t begin, int64_t end) { return dy.rows(begin, end); };
  const ops::BatchNormSlice xs = [x = b.slot(kX), n](int64_t begin, int64_t end) {
    return x.unpack_rows({begin, end, n});
  };
  ops::BatchNormSlice masks;
  if (b.keeps(kMask))
    masks = [m = b.slot(kMask), n](int64_t begin, int64_t end) {
      return m.unpack_rows({begin, end, n});
    };
  const ops::BatchNormSums sums = ops::batch_norm_backward_sums(
      without_values(dy.shape(), dy.dtype(), dy.device()), rows, xs,
      {b.saved(kMean), b.saved(kInvstd)}, {b.saved(kWeight), {}}, masks, step, training);
  Grads grads{{}, sums.dweight, sums.dbias};
  if (b.needs(0))
    grads[0] = Gradient(
        dy.shape(), sums.affine, step,
        [rows, xs, masks, affine = sums.affine](int64_t begin, int64_t end, const Tensor& out) {
          ops::batch_norm_backward_input_into(out, rows(begin, end), xs(begin, end), affine,
                                              masks ? masks(begin, end) : Tensor());
        });
  return grads;
}

Grads backward(const Backward& b, bool training, bool residual_form) {
  const bool want_residual = residual_form && b.needs(3);
  if (!b.keeps(kX)) return backward_without_x(b, want_residual);
  Gradient gradient = b.take_gradient();
  const bool one_row = has_one_row(b.slot(kMask));
  if (!gradient.is_whole() && !want_residual && !one_row)
    if (auto grads = backward_of_slices(b, gradient, training)) return std::move(*grads);
  Tensor dy = std::move(gradient).take();
  if (one_row) {
    if (!is_sole_owner(dy)) dy = ops::clone(dy);
    ops::select_by_mask_over(dy, b.saved(kMask), 0);
  }
  const bool overwrite = is_sole_owner(dy), masked = b.keeps(kMask) && !one_row;
  const ops::BatchNormMoments moments{b.saved(kMean), b.saved(kInvstd)};
  const ops::BatchNormParameters parameters{b.saved(kWeight), {}};
  if (auto grads = backward_of_codes(b, dy, overwrite, masked ? kMask : -1, moments, parameters,
                                     training, want_residual))
    return std::move(*grads);
  const int64_t n = dy.size(0), step = slice_step(b, dy.shape(), dy.dtype(), dy.device());
  ops::BatchNormGradients g;
  if (step < n && (!masked || b.has_rows(kMask, step, n))) {
    ops::BatchNormSlice masks;
    if (masked)
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
    g = ops::batch_norm_backward(dy, b.saved(kX), moments, parameters,
                                 masked ? b.saved(kMask) : Tensor(), training, want_residual,
                                 overwrite);
  }
  return {g.dx, g.dweight, g.dbias, g.dresidual};
}

// What a form of the norm is called with, beside x.
struct Call {
  const char* op;
  const Variable& residual;
  const Variable &weight, &bias;
  const BatchNormStats& stats;
  const BatchNormOptions& options;
  bool relu;

  bool has_residual() const { return residual.defined(); }
  Tensor added() const { return residual.defined() ? residual.value() : Tensor(); }
  ops::BatchNormParameters parameters() const {
    return {weight.defined() ? weight.value() : Tensor(), bias.defined() ? bias.value() : Tensor()};
  }
  Variables inputs(const Variable& x) const { return {x, weight, bias, residual}; }
  bool needs_x(const Variable& x) const {
    return weight.requires_grad() || (options.training && x.requires_grad());
  }
  // Where the relu is 0, x counts only through the statistics of the whole batch.
  Save save_x(const Variable& x) const {
    return save_if(needs_x(x), x).with_sign({}, 0).with_use(kUse);
  }
};

Variable record_norm(const Call& call, const Variable& x, const PassedSave& out,
                     const ops::BatchNormMoments& moments) {
  const bool needs_x = call.needs_x(x), residual_form = call.has_residual();
  const auto describe = [&](TracedOp& t) {
    t.tensor(call.stats.running_mean);
    t.tensor(call.stats.running_var);
    t.set("eps", call.options.eps);
    t.set("training", call.options.training);
  };
  return record(
      {call.op, describe}, call.inputs(x), out.y,
      {out.x, save(call.weight), save(call.bias), save_whole(moments.mean),
       save_whole(moments.invstd), save_rectified(x, out.sign),
       residual_form && needs_x ? for_recipe(call.residual) : Save{}},
      [training = call.options.training, residual_form](const Backward& b) {
        return backward(b, training, residual_form);
      },
      needs_x ? linear_recipe(rebuild, true) : RecipeSpec{});
}

Variable normalize(const Call& call, const Variable& x, bool over_residual) {
  const Variables inputs = call.inputs(x);
  const ops::BatchNormMoments moments = moments_of(x, call.stats, call.options);
  const Tensor added = call.added();
  const Tensor affine = ops::batch_norm_affine(x.value(), moments, call.parameters(), added);
  const PackedPass pass{
      PackedPass::Affine{affine, added.defined() ? ops::contiguous(added) : Tensor(), call.relu},
      over_residual ? added : Tensor()};
  const PassedSave out = save_and_run(call.op, inputs, call.save_x(x), pass, [&](PackedPass& made) {
    const ops::BatchNormOutput apply = ops::batch_norm_apply(
        x.value(), affine, added, call.relu, call.relu && recording(inputs), over_residual);
    made.out = apply.y;
    made.kept = apply.mask;
  });
  const Variable y = record_norm(call, x, out, moments);
  // The slot of the residual was found by its version, and y is another tensor in the same place.
  if (over_residual) out.y.bump_version();
  return y;
}

// Large x are taken in slices of the batch: each is normalized and packed while it is in the cache,
// and y is written over x or over the residual. So there is no second tensor like x. CUDA does not
// take part: its kernels pack whole tensors and make y on the way.
struct Slices {
  std::unique_ptr<SlicedSave> save;  // null: x is taken whole
  int64_t step = 0;                  // samples
};

Slices slices_of(const Call& call, const Variable& x) {
  const Tensor& like = x.value();
  const int64_t bytes = slice_bytes();
  if (!runs_as_cpu(like.device()) || like.dtype() == DType::f64 || like.dim() < 2 ||
      !call.options.training || !call.needs_x(x) || bytes <= 0 || like.nbytes() < 2 * bytes)
    return {};
  const bool makes_mask = call.relu && ops::bitmask_layout(like.shape()).by_rows;
  Slices slices{save_in_slices(call.op, call.inputs(x), call.save_x(x), makes_mask)};
  if (slices.save == nullptr) return {};
  const int64_t n = like.size(0), each = like.nbytes() / n;
  const int64_t unit =
      std::lcm(slices.save->unit(), ops::batch_norm_slice_unit(like.shape(), like.device()));
  slices.step = round_up(std::max<int64_t>(bytes / each, 1), unit);
  if (slices.step >= n) return {};
  return slices;
}

// `x`: tells the shape. `rows` gives slices of it, each asked for once; a slice is written over
// with y where there is no residual, else the residual is. `y`: the tensor that is written over.
Variable normalize_slices(const Call& call, const Variable& x, const ops::BatchNormSlice& rows,
                          const ops::BatchNormMoments& moments, Slices slices, const Tensor& y) {
  const Tensor affine = ops::batch_norm_affine(x.value(), moments, call.parameters(), call.added());
  PassedSave out{y, call.save_x(x), {}};
  const Shape& shape = x.shape();
  // A mask of one row is made of the whole y.
  const bool makes_mask = call.relu && ops::bitmask_layout(shape).by_rows;
  const bool keeps_mask = makes_mask && !slices.save->carries_sign();
  Tensor mask = keeps_mask ? ops::empty_bitmask(shape, x.device()) : Tensor();
  const int64_t n = shape[0], mask_rows = shape.numel() / shape.back() / 8;
  for (int64_t begin = 0; begin < n; begin += slices.step) {
    CategoryScope scope(Category::workspace);
    const int64_t end = std::min(n, begin + slices.step);
    const Tensor part = rows(begin, end);
    const Tensor added = call.has_residual() ? y.slice(0, begin, end) : Tensor();
    const ops::BatchNormOutput made =
        ops::batch_norm_apply(part, affine, added, call.relu, makes_mask, call.has_residual());
    slices.save->add(part, made.mask);
    if (!call.has_residual()) ops::copy_into(part, made.y);
    if (keeps_mask)
      ops::copy_into(mask.slice(0, begin * mask_rows / n, end * mask_rows / n), made.mask);
  }
  if (call.relu && !makes_mask) mask = ops::rectify_over(y, 0);
  out.sign = save_sign(mask);
  slices.save->finish(out.x, out.sign);
  const Variable made = record_norm(call, x, out, moments);
  y.bump_version();
  return made;
}

// The forms without a residual.
Variable normalize(const Call& call, Variable x) {
  if (x.is_sole_handle() && is_sole_owner(x.value()) && active_trace() == nullptr)
    if (Slices slices = slices_of(call, x); slices.save != nullptr) {
      const ops::BatchNormSlice rows = [&](int64_t begin, int64_t end) {
        return x.value().slice(0, begin, end);
      };
      const ops::BatchNormMoments moments = moments_of(x, call.stats, call.options);
      return normalize_slices(call, x, rows, moments, std::move(slices), x.value());
    }
  return normalize(call, x, false);
}

// The number of products in an element of a convolution's output up to which the convolution is run
// twice rather than its output kept. Slices of the output stay in the cache, so this takes no
// longer.
constexpr int64_t kFewProducts = 128;

bool may_run_twice(const Conv2dCall& conv, const Variable& residual,
                   const BatchNormOptions& options) {
  if (!residual.is_sole_handle() || !is_sole_owner(residual.value()) || !options.training ||
      active_trace() != nullptr || conv.x.value().dim() != 4 || conv.weight.value().dim() != 4 ||
      !recording({conv.x, conv.weight, conv.bias}))
    return false;
  const Shape &x = conv.x.shape(), &w = conv.weight.shape();
  const int64_t bytes = slice_bytes();
  return w[1] * w[2] * w[3] <= kFewProducts && bytes > 0 &&
         residual.value().nbytes() >= 2 * bytes && residual.dtype() == conv.x.dtype() &&
         residual.device() == conv.x.device() &&
         residual.shape() == ops::conv2d_shape("conv2d", x, w, conv.options);
}

}  // namespace

Variable batch_norm(Variable x, const Variable& weight, const Variable& bias,
                    const BatchNormStats& stats, const BatchNormOptions& options) {
  const Variable none;
  return normalize({"batch_norm", none, weight, bias, stats, options, false}, std::move(x));
}

Variable batch_norm_relu(Variable x, const Variable& weight, const Variable& bias,
                         const BatchNormStats& stats, const BatchNormOptions& options) {
  const Variable none;
  return normalize({"batch_norm_relu", none, weight, bias, stats, options, true}, std::move(x));
}

Variable batch_norm_add_relu(const Variable& x, Variable residual, const Variable& weight,
                             const Variable& bias, const BatchNormStats& stats,
                             const BatchNormOptions& options) {
  const bool mine = residual.is_sole_handle() && is_sole_owner(residual.value());
  return normalize({"batch_norm_add_relu", residual, weight, bias, stats, options, true}, x, mine);
}

Variable conv2d_batch_norm_add_relu(Conv2dCall conv, Variable residual, const Variable& weight,
                                    const Variable& bias, const BatchNormStats& stats,
                                    const BatchNormOptions& options) {
  if (!may_run_twice(conv, residual, options)) {
    const Variable y = conv2d(std::move(conv.x), conv.weight, conv.bias, conv.options);
    conv.x = {};
    return batch_norm_add_relu(y, std::move(residual), weight, bias, stats, options);
  }
  const Call call{"batch_norm_add_relu", residual, weight, bias, stats, options, true};
  const auto run = [&](const Tensor& part) {
    return ops::conv2d(part, conv.weight.value(),
                       conv.bias.defined() ? conv.bias.value() : Tensor(), conv.options);
  };
  // The convolution is recorded first, so that tensors have the same numbers on both ways.
  const Variable x =
      record_conv2d(conv, without_values(residual.shape(), residual.dtype(), residual.device()));
  Slices slices = slices_of(call, x);
  if (slices.save == nullptr) {
    const Variable y = make_output(run(conv.x.value()), x.producer());
    conv.x = {};
    return normalize(call, y, true);
  }
  const ops::BatchNormSlice rows = [&](int64_t begin, int64_t end) {
    CategoryScope scope(Category::workspace);
    return run(conv.x.value().slice(0, begin, end));
  };
  const bool update = !recomputing();
  const ops::BatchNormMoments moments =
      ops::batch_norm_moments(x.value(), rows, slices.step, update ? stats.running_mean : Tensor(),
                              update ? stats.running_var : Tensor(), options);
  return normalize_slices(call, x, rows, moments, std::move(slices), residual.value());
}

}  // namespace frugal
