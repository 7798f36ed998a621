#include "autograd/adapter_functions.h"

#include "autograd/product_recipes.h"
#include "autograd/record.h"
#include "autograd/trace.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/dense/dropout.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// ---- low rank
enum LowRankInput { kY, kX, kA, kB };
enum LowRankSlot { kKeptX, kKeptZ, kKeptA, kKeptB, kFirstY };  // z = drop(x) a^T

Tensor scaled(const Tensor& x, double factor) {
  return factor == 1 ? x : ops::affine(x, factor, 0);
}

Tensor dropped(const Tensor& x, const LowRankOptions& o) {
  return o.dropout == 0 ? x : ops::dropout(x, o.dropout, o.key);
}

// z = drop(x) a^T, y' = y + s z b^T:
//   dy = dy',  db = s dy'^T z,  dz = s dy' b,  da = dz^T drop(x),  dx = drop(dz a).
// All are linear in x and z, so codes of both leave no bias. Recipe: linear, where y has one.
Grads low_rank_gradients(const Backward& b, const LowRankOptions& o) {
  Grads grads(4);
  const Tensor dy = ops::contiguous(b.dy());
  if (b.needs(kB)) grads[kB] = scaled(ops::linear_backward_weight(dy, b.saved(kKeptZ)), o.scale);
  if (b.needs(kX) || b.needs(kA)) {
    const Tensor dz = scaled(ops::linear_backward_input(dy, b.saved(kKeptB)), o.scale);
    // x may have been unpacked, so it is released before dx is made.
    if (b.needs(kA)) grads[kA] = ops::linear_backward_weight(dz, dropped(b.saved(kKeptX), o));
    if (b.needs(kX)) {
      const Tensor a = b.saved(kKeptA), partial = b.partial(kX);
      if (o.dropout == 0 && partial.defined())
        ops::add_linear_backward_input(partial, dz, a);
      else
        grads[kX] = dropped(ops::linear_backward_input(dz, a), o);
    }
  }
  if (b.needs(kY)) grads[kY] = b.take_dy();
  return grads;
}

Tensor rebuilt_sum(const Slots& s, double scale) {
  Tensor y = s.unpack(kFirstY);
  if (!is_sole_owner(y)) y = ops::clone(y);
  ops::add_linear(y, scaled(s.unpack(kKeptZ), scale), s.unpack(kKeptB));
  return y;
}

// ---- magnitude
enum MagnitudeInput { kOut, kMagnitude, kBias };
enum MagnitudeSlot { kProduct, kKeptMagnitude, kNorm };

// magnitude / norm - 1 of each channel, in the dtype of y.
Tensor excess_of(const Tensor& magnitude, const Tensor& norm, DType dtype) {
  return ops::cast(ops::affine(ops::div(magnitude, norm), 1, -1), dtype);
}

// v = y - bias, y' = y + h v with h = magnitude / norm - 1:
//   dy = dy' + h dy',  dmagnitude = sum(dy' v) / norm,  dbias = -sum(h dy').
Grads magnitude_gradients(const Backward& b) {
  Grads grads(3);
  const Tensor dy = ops::contiguous(b.dy()), norm = b.saved(kNorm);
  if (b.needs(kMagnitude))
    grads[kMagnitude] = ops::div(ops::linear_backward_bias(ops::mul(dy, b.saved(kProduct))), norm);
  if (b.needs(kOut) || b.needs(kBias)) {
    const Tensor more = ops::mul(dy, excess_of(b.saved(kKeptMagnitude), norm, dy.dtype()));
    if (b.needs(kBias)) grads[kBias] = ops::affine(ops::linear_backward_bias(more), -1, 0);
    if (b.needs(kOut)) grads[kOut] = ops::add(dy, more);
  }
  return grads;
}

}  // namespace

Variable add_low_rank(Variable y, const Variable& x, const Variable& a, const Variable& b,
                      const LowRankOptions& options) {
  constexpr const char* kOp = "add_low_rank";
  ops::check_dim(kOp, "a", a.value(), 2);
  ops::check_dim(kOp, "b", b.value(), 2);
  ops::check_shape(kOp, "b", b.value(), {b.size(0), a.size(0)});
  Shape shape = x.shape();
  FRUGAL_CHECK(shape.dim() >= 1 && shape.back() == a.size(1),
               "[add_low_rank] expected x [..., {}] for a {}, got {}", a.size(1), a.shape(), shape);
  shape[shape.dim() - 1] = b.size(0);
  ops::check_shape(kOp, "y", y.value(), shape);
  const Tensor z = ops::linear(dropped(x.value(), options), a.value(), {});
  const bool mine = y.is_sole_handle() && is_sole_owner(y.value()) && !y.is_held();
  const Tensor out = mine ? y.value() : ops::clone(y.value());
  ops::add_linear(out, scaled(z, options.scale), b.value());
  const double scale = options.scale * options.scale;
  // What dropout multiplies the values by that it leaves.
  const double larger = options.dropout < 1 ? 1 / (1 - options.dropout) : 0;
  const Use use_z = Use::product(
                {.input = kB, .gain = scale, .fan = scale * static_cast<double>(a.size(0))}),
            use_x = Use::product({.input = kA,
                                  .gain = scale * larger * larger,
                                  .fan = scale * larger * static_cast<double>(a.size(1)),
                                  .weight = kKeptB});
  const bool needs_dz = x.requires_grad() || a.requires_grad();
  // Where y was written over, its producer still rebuilds it.
  const bool rebuilds = ProductRecipes::active() && b.requires_grad();
  RecipeSpec recipe;
  if (rebuilds) {
    recipe =
        linear_recipe([scale = options.scale](const Slots& s) { return rebuilt_sum(s, scale); });
    recipe.least_bits = ProductRecipes::least_bits();
  }
  const ProductSources sources(recipe.least_bits);
  return record(
      {kOp,
       [&](TracedOp& t) {
         t.set("scale", options.scale);
         t.set("dropout", options.dropout);
       }},
      {y, x, a, b}, out,
      {a.requires_grad() ? save(x).with_use(use_x) : Save(),
       b.requires_grad() ? save(z).with_use(use_z) : Save(), save_if(x.requires_grad(), a),
       save_if(needs_dz || rebuilds, b), rebuilds ? for_recipe(y) : Save()},
      [options](const Backward& back) { return low_rank_gradients(back, options); },
      std::move(recipe));
}

Variable scale_to_magnitude(const Variable& y, const Variable& magnitude, const Tensor& norm,
                            const Variable& bias) {
  constexpr const char* kOp = "scale_to_magnitude";
  FRUGAL_CHECK(y.shape().dim() >= 1, "[scale_to_magnitude] expected y [..., O], got {}", y.shape());
  const Shape channels{y.shape().back()};
  ops::check_shape(kOp, "magnitude", magnitude.value(), channels);
  ops::check_shape(kOp, "norm", norm, channels);
  if (bias.defined()) ops::check_shape(kOp, "bias", bias.value(), channels);
  const Tensor excess = excess_of(magnitude.value(), norm, y.dtype());
  const Tensor v =
      bias.defined() ? ops::sub(y.value(), ops::cast(bias.value(), y.dtype())) : y.value();
  const Tensor out = ops::add(y.value(), ops::mul(v, excess));
  const bool keeps = magnitude.requires_grad();
  const bool scales = y.requires_grad() || (bias.defined() && bias.requires_grad());
  return record(kOp, {y, magnitude, bias}, out,
                {!keeps           ? Save()
                 : bias.defined() ? save(v)
                                  : save(y),
                 save_if(scales, magnitude), save_whole(norm)},
                [](const Backward& b) { return magnitude_gradients(b); });
}

}  // namespace frugal
