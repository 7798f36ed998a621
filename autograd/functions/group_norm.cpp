#include "ops/image/group_norm.h"

#include "autograd/functions/normalized_rows.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

enum GroupNormSlot { kGroupX, kGroupWeight, kGroupBias, kGroupMean, kGroupInvstd };

}  // namespace

// The statistics of a sample's groups are sliced along the batch together with x.
Variable group_norm(const Variable& x, int64_t groups, const Variable& weight, const Variable& bias,
                    double eps) {
  const Variables inputs{x, weight, bias};
  const Tensor w = weight.defined() ? weight.value() : Tensor(),
               b = bias.defined() ? bias.value() : Tensor();
  const Use use = Use::normalized_rows({.input = 1,
                                        .weight = kGroupWeight,
                                        .invstd = kGroupInvstd,
                                        .mean = kGroupMean,
                                        .groups = groups});
  // The bias's gradient alone needs neither x nor its statistics.
  const bool needs_x = x.requires_grad() || weight.requires_grad();
  const bool normalized = needs_x && keeps_normalized_rows(inputs, x);
  const auto norm = [&](const Tensor& by, const Tensor& plus) {
    return ops::group_norm(x.value(), groups, by, plus, eps);
  };
  ops::LayerNormOutput out = normalized ? norm({}, {}) : norm(w, b);
  Save kept;
  if (!normalized) {
    kept = save_if(needs_x, x).with_use(use);
  } else {
    kept = keep_now("group_norm", save(out.y).with_use(of_normalized_rows(use)));
    if (w.defined() || b.defined())
      out.y = may_scale_rounded(x.dtype())
                  ? ops::group_norm_apply(out.y, ops::normalized_moments(out.moments.invstd, true),
                                          w, b, is_sole_owner(out.y))
                  : norm(w, b).y;
  }
  const auto moments = [&](const Tensor& m) { return needs_x ? save_exact(m) : Save{}; };
  const NormRows rows = normalized ? NormRows::centred : NormRows::plain;
  const auto describe = [&](TracedOp& t) {
    t.set("groups", groups);
    t.set("eps", eps);
  };
  return record(
      {"group_norm", describe}, inputs, out.y,
      {kept, save(weight), save(bias), moments(normalized ? Tensor() : out.moments.mean),
       moments(out.moments.invstd)},
      [rows](const Backward& back) {
        if (!back.keeps(kGroupX)) return Grads{{}, {}, ops::linear_backward_bias(back.dy())};
        ops::RowMoments m = moments_of(back.saved(kGroupMean), back.saved(kGroupInvstd), rows);
        if (rows != NormRows::plain && m.scale.numel() > 0)
          m.gain = gain_of(back.slot(kGroupX), back.dy().numel() / m.scale.numel());
        const ops::LayerNormGradients g =
            ops::group_norm_backward(back.dy(), back.saved(kGroupX), m, back.saved(kGroupWeight),
                                     {back.needs(0), back.needs(1), back.needs(2)});
        return Grads{g.dx, g.dweight, g.dbias};
      },
      needs_x ? linear_recipe(
                    [rows](const Slots& s) {
                      return ops::group_norm_apply(
                          s.unpack(kGroupX),
                          moments_of(s.unpack(kGroupMean), s.unpack(kGroupInvstd), rows),
                          s.unpack(kGroupWeight), s.unpack(kGroupBias));
                    },
                    true)
              : RecipeSpec{});
}

}  // namespace frugal
