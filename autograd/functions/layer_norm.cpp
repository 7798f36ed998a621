#include "ops/sequence/layer_norm.h"

#include "autograd/functions/normalized_rows.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// The slots of every form. rms_norm has no mean; only the form with relu has a mask.
enum Slot { kX, kWeight, kBias, kMean, kInvstd, kMask };
constexpr Use kUse = Use::normalized_rows(
    {.input = 1, .weight = kWeight, .invstd = kInvstd, .mean = kMean, .mask = kMask});

// y = weight (x - mean) invstd + bias. With relu this is 0 where the bit is not set.
Tensor rebuilt_rows(const Slots& s, NormRows rows) {
  const Tensor y =
      ops::layer_norm_apply(s.unpack(kX), moments_of(s.unpack(kMean), s.unpack(kInvstd), rows),
                            s.unpack(kWeight), s.unpack(kBias));
  const Tensor mask = s.unpack(kMask);
  return mask.defined() ? ops::select_by_mask(y, mask, 0) : y;
}

// g = weight dy, xhat = (x - mean) invstd, averages over the row:
// dx = invstd (g - avg(g) - xhat avg(g xhat)), dweight = sum(dy xhat), dbias = sum(dy).
Grads row_gradients(const Backward& b, NormRows rows) {
  Tensor dy = b.take_dy();
  if (b.keeps(kMask)) dy = ops::select_by_mask(dy, b.saved(kMask), 0);
  if (!b.keeps(kX)) return {Tensor(), Tensor(), ops::linear_backward_bias(dy)};
  const bool mine = is_sole_owner(dy);
  ops::RowMoments moments = moments_of(b.saved(kMean), b.saved(kInvstd), rows);
  if (rows != NormRows::plain) moments.gain = gain_of(b.slot(kX), dy.shape().back());
  const ops::LayerNormGradients g = ops::layer_norm_backward(
      dy, b.saved(kX), moments, b.saved(kWeight), {b.needs(0), b.needs(1), b.needs(2)}, mine);
  return {g.dx, g.dweight, g.dbias};
}

Tensor value_or_none(const Variable& x) { return x.defined() ? x.value() : Tensor(); }

struct RowNormOp {
  const char* op;
  double eps;
  bool centred = true;   // else rms_norm
  bool rectify = false;  // with relu
  double offset = 0;     // what is added to the weight

  ops::LayerNormOutput operator()(const Variable& x, const Tensor& weight,
                                  const Tensor& bias) const {
    return centred ? ops::layer_norm(x.value(), weight, bias, eps)
                   : ops::rms_norm(x.value(), weight, eps);
  }
};

Variable record_norm(const RowNormOp& norm, const Variable& x, const Variable& weight,
                     const Variable& bias) {
  const Variables inputs{x, weight, bias};
  // What the norm multiplies by, if that is not `weight` itself.
  const Tensor scale =
      norm.offset != 0 && weight.defined() ? ops::affine(weight.value(), 1, norm.offset) : Tensor();
  const Tensor w = scale.defined() ? scale : value_or_none(weight), b = value_or_none(bias);
  // Slices of rows take the statistics of their rows. The bias's gradient alone needs neither x nor
  // the statistics.
  const bool needs_x = x.requires_grad() || weight.requires_grad();
  const bool normalized = needs_x && keeps_normalized_rows(inputs, x);
  ops::LayerNormOutput out = normalized ? norm(x, {}, {}) : norm(x, w, b);
  Save kept, sign;
  if (!normalized) {
    kept = save_if(needs_x, x).with_use(kUse);
  } else {
    kept = save(out.y).with_use(of_normalized_rows(kUse));
    // Codes that carry the mask of relu are made when the mask is known.
    if (!norm.rectify) kept = keep_now(norm.op, std::move(kept));
    if (w.defined() || b.defined())
      out.y = may_scale_rounded(x.dtype())
                  ? ops::layer_norm_apply(out.y,
                                          ops::normalized_moments(out.moments.invstd, norm.centred),
                                          w, b, is_sole_owner(out.y))
                  : norm(x, w, b).y;
  }
  // Where relu gave 0, x matters only through the statistics of its row.
  if (norm.rectify) {
    const ops::Rectified y = ops::rectify(out.y, 0, recording(inputs));
    out.y = y.y;
    if (y.mask.defined()) {
      kept.sign = {y.mask, 0};
      sign = save_sign(y.mask);
    }
  }
  const auto describe = [&](TracedOp& t) {
    t.set("eps", norm.eps);
    t.set("offset", norm.offset);
  };
  const auto moments = [&](const Tensor& m) { return needs_x ? save_exact(m) : Save{}; };
  const NormRows rows = !normalized    ? NormRows::plain
                        : norm.centred ? NormRows::centred
                                       : NormRows::uncentred;
  return record(
      {norm.op, describe}, inputs, out.y,
      {kept, scale.defined() ? save_whole(scale) : save(weight), save(bias),
       moments(normalized ? Tensor() : out.moments.mean), moments(out.moments.invstd), sign},
      [rows](const Backward& back) { return row_gradients(back, rows); },
      needs_x ? linear_recipe([rows](const Slots& s) { return rebuilt_rows(s, rows); }, true)
              : RecipeSpec{});
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  return record_norm({"layer_norm", eps}, x, weight, bias);
}

Variable rms_norm(const Variable& x, const Variable& weight, double eps, double offset) {
  return record_norm({"rms_norm", eps, false, false, offset}, x, weight, {});
}

Variable layer_norm_relu(const Variable& x, const Variable& weight, const Variable& bias,
                         double eps) {
  return record_norm({"layer_norm_relu", eps, true, true}, x, weight, bias);
}

}  // namespace frugal
