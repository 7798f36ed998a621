#include "ops/image/group_norm.h"

#include "autograd/record.h"
#include "autograd/trace.h"
#include "autograd/transformer_functions.h"
#include "ops/dense/matmul.h"

namespace frugal {

// The statistics of a sample's groups are sliced along the batch together with x.
Variable group_norm(const Variable& x, int64_t groups, const Variable& weight, const Variable& bias,
                    double eps) {
  const Tensor w = weight.defined() ? weight.value() : Tensor(),
               b = bias.defined() ? bias.value() : Tensor();
  const ops::LayerNormOutput out = ops::group_norm(x.value(), groups, w, b, eps);
  const Use use =
      Use::normalized_rows({.input = 1, .weight = 1, .invstd = 4, .mean = 3, .groups = groups});
  // The bias's gradient alone needs neither x nor its statistics.
  const bool needs_x = x.requires_grad() || weight.requires_grad();
  const auto moments = [&](const Tensor& m) { return needs_x ? save_exact(m) : Save{}; };
  const auto describe = [&](TracedOp& t) {
    t.set("groups", groups);
    t.set("eps", eps);
  };
  return record(
      {"group_norm", describe}, {x, weight, bias}, out.y,
      {save_if(needs_x, x).with_use(use), save(weight), save(bias), moments(out.moments.mean),
       moments(out.moments.invstd)},
      [](const Backward& back) {
        if (!back.keeps(0)) return Grads{{}, {}, ops::linear_backward_bias(back.dy())};
        const ops::LayerNormGradients g =
            ops::group_norm_backward(back.dy(), back.saved(0), {back.saved(3), back.saved(4)},
                                     back.saved(1), {back.needs(0), back.needs(1), back.needs(2)});
        return Grads{g.dx, g.dweight, g.dbias};
      },
      needs_x ? linear_replay(
                    [](const Slots& s) {
                      return ops::group_norm_apply(s.unpack(0), {s.unpack(3), s.unpack(4)},
                                                   s.unpack(1), s.unpack(2));
                    },
                    true)
              : ReplaySpec{});
}

}  // namespace frugal
