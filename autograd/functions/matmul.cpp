#include "ops/dense/matmul.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "autograd/functions.h"
#include "autograd/graph_functions.h"
#include "autograd/node.h"
#include "autograd/product_recipes.h"
#include "autograd/trace.h"
#include "ops/dense/copy.h"
#include "ops/dense/reduce.h"

namespace frugal {
namespace {

thread_local bool products_have_recipes = false;
thread_local int least_bits_of_products = 0, bits_of_sources = 0;

Save save_linear_input(const Variable& x, const Variable& weight) {
  const Use use = Use::product({.input = 1, .fan = static_cast<double>(weight.shape().back())});
  return save_if(weight.requires_grad(), x).with_use(use);
}

// The gradient of the weight is a sum over the items of the leading axis. It has one order, whether
// x comes in slices or is whole.
struct Steps {
  int64_t items, of_sum, of_slices;  // in all; that are added up, and that are taken, at once
};
Steps linear_steps(const Backward& b, const Tensor& dy) {
  const int64_t n = dy.dim() > 1 ? dy.size(0) : 1;
  if (!b.needs(1) || dy.dim() < 2 || dy.numel() == 0) return {n, n, n};
  // What is narrow beside dy saves little in slices, and each costs a pass over the weight.
  constexpr int64_t kWidest = 4;
  const int64_t item_rows = dy.numel() / dy.size(-1) / n, of_x = b.slot(0).shape().back();
  const int64_t width = std::clamp(dy.size(-1), of_x, kWidest * of_x);
  const int64_t bytes = item_rows * width * static_cast<int64_t>(size_of(dy.dtype()));
  // If x is rebuilt through masks, a slice must hold whole bytes of eight rows.
  const int64_t unit = 8 / std::gcd<int64_t>(8, item_rows);
  return {n, b.sum_items(0, bytes, unit), b.slice_items(0, bytes, unit)};
}

// Calls f(begin, end) for slices of n items.
template <class F>
void for_row_steps(int64_t n, int64_t step, F f) {
  for (int64_t begin = 0; begin < n; begin += step) f(begin, std::min(n, begin + step));
}

// x_of(begin, end) gives these items of x.
template <class F>
Tensor weight_gradient(const Tensor& dy, const Steps& steps, F x_of) {
  Tensor dw;
  for_row_steps(steps.items, steps.of_sum, [&](int64_t begin, int64_t end) {
    const Tensor part = dy.slice(0, begin, end), x = x_of(begin, end);
    if (dw.defined())
      ops::add_linear_backward_weight(dw, part, x);
    else
      dw = ops::linear_backward_weight(part, x);
  });
  return dw;
}

Tensor rows_of(const Tensor& x) { return x.view({x.numel() / x.size(-1), x.size(-1)}); }

// A sum that is taken in steps takes dx in steps, too, where it could be written over dy. So it is
// where x comes in slices.
Tensor input_gradient(const Tensor& dy, const Tensor& weight, const Steps& steps) {
  if (steps.of_sum == steps.items || weight.size(0) != weight.size(1) || !weight.is_contiguous() ||
      !dy.is_contiguous() || !is_sole_owner(dy) || !runs_as_cpu(dy.device()))
    return ops::linear_backward_input(dy, weight);
  const bool over = steps.of_slices < steps.items;
  const Tensor dx = over ? dy : Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  for_row_steps(steps.items, steps.of_sum, [&](int64_t begin, int64_t end) {
    CategoryScope scope(Category::workspace);
    const Tensor part = dy.slice(0, begin, end), to = dx.slice(0, begin, end);
    if (over)
      ops::copy_into(to, ops::linear_backward_input(part, weight));
    else
      ops::multiply_into(rows_of(to), rows_of(part), weight);
  });
  if (over) dy.bump_version();
  return dx;
}

Grads linear_backward(const Backward& b) {
  const Tensor dy = b.take_dy();
  const Steps steps = linear_steps(b, dy);
  Grads grads(3);
  // x may be unpacked, as a whole or in slices, so it is released before dx is made.
  if (b.needs(1) && steps.of_slices < steps.items)
    grads[1] = weight_gradient(dy, steps, [&](int64_t begin, int64_t end) {
      return b.saved_rows(0, begin, end, steps.items);
    });
  else if (b.needs(1) && steps.of_sum < steps.items)
    grads[1] = weight_gradient(
        dy, steps, [x = b.saved(0)](int64_t begin, int64_t end) { return x.slice(0, begin, end); });
  else if (b.needs(1))
    grads[1] = ops::linear_backward_weight(dy, b.saved(0));
  if (b.needs(2)) grads[2] = ops::linear_backward_bias(dy);
  if (b.needs(0)) grads[0] = input_gradient(dy, b.saved(1), steps);
  return grads;
}

}  // namespace

ProductRecipes::ProductRecipes(bool active, int least_bits)
    : previous_(std::exchange(products_have_recipes, active)),
      previous_bits_(std::exchange(least_bits_of_products, least_bits)) {}
ProductRecipes::~ProductRecipes() {
  products_have_recipes = previous_;
  least_bits_of_products = previous_bits_;
}
bool ProductRecipes::active() { return products_have_recipes; }
int ProductRecipes::least_bits() { return least_bits_of_products; }

ProductSources::ProductSources(int bits) : previous_(std::exchange(bits_of_sources, bits)) {}
ProductSources::~ProductSources() { bits_of_sources = previous_; }
int ProductSources::bits() { return bits_of_sources; }

Variable linear(const Variable& x, const Variable& weight, const Variable& bias) {
  Tensor y = ops::linear(x.value(), weight.value(), bias.defined() ? bias.value() : Tensor());
  const Save kept_weight = save_if(x.requires_grad(), weight);
  if (!ProductRecipes::active() || weight.requires_grad() || !x.requires_grad())
    return record("linear", {x, weight, bias}, std::move(y),
                  {save_linear_input(x, weight), kept_weight}, linear_backward);
  // Not by rows: a product of some rows may have other bits.
  RecipeSpec recipe = linear_recipe(
      [](const Slots& s) { return ops::linear(s.unpack(0), s.unpack(1), s.unpack(2)); });
  recipe.least_bits = ProductRecipes::least_bits();
  return record("linear", {x, weight, bias}, std::move(y), {for_recipe(x), kept_weight, save(bias)},
                linear_backward, std::move(recipe));
}

Variable linear_over(Variable x, const Variable& weight, const Variable& bias) {
  const int64_t bytes = slice_bytes();
  if (!x.is_sole_handle() || active_trace() != nullptr || !runs_as_cpu(x.device()) ||
      x.value().dim() < 2 || weight.value().dim() != 2 || weight.size(0) != weight.size(1) ||
      bytes <= 0 || x.value().nbytes() < 2 * bytes)
    return linear(x, weight, bias);
  const Variables inputs{x, weight, bias};
  Save input = save_linear_input(x, weight);
  if (recording(inputs)) input.kept = keep("linear", 0, input);
  input.value = {};
  const Save kept_weight = save_if(x.requires_grad(), weight);
  const Tensor w = weight.value(), added = bias.defined() ? bias.value() : Tensor();
  const bool over = is_sole_owner(x.value());  // else x is kept as it is
  const Tensor from = x.value();
  const Tensor y = over ? from : Tensor::empty(from.shape(), from.dtype(), from.device());
  const int64_t n = y.size(0);
  // A product of few rows may have other bits than one of all rows, so both ways take it in slices.
  for_row_steps(n, std::max<int64_t>(bytes / (y.nbytes() / n), 1), [&](int64_t begin, int64_t end) {
    CategoryScope scope(Category::workspace);
    const Tensor part = from.slice(0, begin, end), to = y.slice(0, begin, end);
    if (over || added.defined() || !from.is_contiguous())
      ops::copy_into(to, ops::linear(part, w, added));
    else
      ops::multiply_into(rows_of(to), rows_of(part), ops::contiguous(w).transpose(0, 1));
  });
  if (over) y.bump_version();
  return record("linear", inputs, y, {input, kept_weight}, linear_backward);
}

Variable matmul(const Variable& a, const Variable& b) {
  // Each operand is saved only if the other one needs a gradient.
  const Save keep_a = save_if(b.requires_grad(), a), keep_b = save_if(a.requires_grad(), b);
  return record(
      "matmul", {a, b}, ops::matmul(a.value(), b.value()), {keep_a, keep_b},
      [a_shape = a.shape(), b_shape = b.shape()](const Backward& back) {
        Grads grads(2);
        if (back.needs(0))
          grads[0] = ops::sum_to(ops::matmul(back.dy(), back.saved(1).transpose(-1, -2)), a_shape);
        if (back.needs(1))
          grads[1] = ops::sum_to(ops::matmul(back.saved(0).transpose(-1, -2), back.dy()), b_shape);
        return grads;
      });
}

}  // namespace frugal
