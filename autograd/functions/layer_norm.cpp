#include "ops/sequence/layer_norm.h"

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
Tensor rebuild(const Slots& s) {
  const Tensor y = ops::layer_norm_apply(s.unpack(kX), {s.unpack(kMean), s.unpack(kInvstd)},
                                         s.unpack(kWeight), s.unpack(kBias));
  const Tensor mask = s.unpack(kMask);
  return mask.defined() ? ops::select_by_mask(y, mask, 0) : y;
}

// g = weight dy, xhat = (x - mean) invstd, averages over the row:
// dx = invstd (g - avg(g) - xhat avg(g xhat)), dweight = sum(dy xhat), dbias = sum(dy).
Grads backward(const Backward& b) {
  Tensor dy = b.take_dy();
  if (b.keeps(kMask)) dy = ops::select_by_mask(dy, b.saved(kMask), 0);
  if (!b.keeps(kX)) return {Tensor(), Tensor(), ops::linear_backward_bias(dy)};
  const bool mine = is_sole_owner(dy);
  const ops::LayerNormGradients g =
      ops::layer_norm_backward(dy, b.saved(kX), {b.saved(kMean), b.saved(kInvstd)},
                               b.saved(kWeight), {b.needs(0), b.needs(1), b.needs(2)}, mine);
  return {g.dx, g.dweight, g.dbias};
}

Tensor value_of(const Variable& x) { return x.defined() ? x.value() : Tensor(); }

// scale: what the norm multiplies by, if that is not `weight` itself.
Variable record_norm(const char* op, const Variable& x, const Variable& weight,
                     const Variable& bias, double eps, const ops::LayerNormOutput& out,
                     const Tensor& mask, double offset = 0, const Tensor& scale = {}) {
  // Slices of rows take the statistics of their rows. The bias's gradient alone needs neither x nor
  // the statistics.
  const bool needs_x = x.requires_grad() || weight.requires_grad();
  const auto moments = [&](const Tensor& m) { return needs_x ? save_exact(m) : Save{}; };
  Save kept = save_if(needs_x, x).with_use(kUse), sign;
  if (mask.defined()) {
    kept.sign = {mask, 0};
    sign = save_sign(mask);
  }
  const auto describe = [&](TracedOp& t) {
    t.set("eps", eps);
    t.set("offset", offset);
  };
  return record({op, describe}, {x, weight, bias}, out.y,
                {kept, scale.defined() ? save_whole(scale) : save(weight), save(bias),
                 moments(out.moments.mean), moments(out.moments.invstd), sign},
                backward, needs_x ? linear_replay(rebuild, true) : ReplaySpec{});
}

}  // namespace

Variable layer_norm(const Variable& x, const Variable& weight, const Variable& bias, double eps) {
  return record_norm("layer_norm", x, weight, bias, eps,
                     ops::layer_norm(x.value(), value_of(weight), value_of(bias), eps), {});
}

Variable rms_norm(const Variable& x, const Variable& weight, double eps, double offset) {
  Tensor scale;
  if (offset != 0 && weight.defined()) scale = ops::affine(weight.value(), 1, offset);
  return record_norm("rms_norm", x, weight, {}, eps,
                     ops::rms_norm(x.value(), scale.defined() ? scale : value_of(weight), eps), {},
                     offset, scale);
}

// Where relu gave 0, x matters only through the statistics of its row.
Variable layer_norm_relu(const Variable& x, const Variable& weight, const Variable& bias,
                         double eps) {
  ops::LayerNormOutput out = ops::layer_norm(x.value(), value_of(weight), value_of(bias), eps);
  const ops::Rectified y = ops::rectify(out.y, 0, recording({x, weight, bias}));
  out.y = y.y;
  return record_norm("layer_norm_relu", x, weight, bias, eps, out, y.mask);
}

}  // namespace frugal
