#include "ops/dense/packed_linear.h"

#include "autograd/packed_functions.h"
#include "autograd/product_recipes.h"
#include "autograd/record.h"
#include "ops/dense/matmul.h"

namespace frugal {
namespace {

// Slots: the parts of the weight, x and the bias.
struct PackedSlots {
  ops::MatrixFormat format;
  int64_t rows, columns;
  int x;  // the slot of x

  template <class Unpack>
  ops::PackedMatrix weight(Unpack unpack) const {
    ops::PackedMatrix packed{format, rows, columns, unpack(0), {}, {}, {}};
    if (format != ops::MatrixFormat::bf16) packed.scales = unpack(1);
    if (format == ops::MatrixFormat::nf4) {
      packed.scale_blocks = unpack(2);
      packed.scale_mean = unpack(3);
    }
    return packed;
  }
};

}  // namespace

Variable packed_linear(const Variable& x, const ops::PackedMatrix& weight, const Variable& bias) {
  std::vector<Save> saves;
  if (x.requires_grad())
    for (const auto& [ending, tensor] : weight.parts()) saves.push_back({*tensor, Role::weight});
  const PackedSlots slots{weight.format, weight.rows, weight.columns,
                          static_cast<int>(saves.size())};
  RecipeSpec recipe;
  if (ProductRecipes::active() && x.requires_grad()) {
    saves.push_back(for_recipe(x));
    saves.push_back(save(bias));
    // Not by rows: a product of some rows may have other bits.
    recipe = linear_recipe([slots](const Slots& s) {
      return ops::packed_linear(s.unpack(slots.x),
                                slots.weight([&](int slot) { return s.unpack(slot); }),
                                s.unpack(slots.x + 1));
    });
    recipe.least_bits = ProductRecipes::least_bits();
  }
  return record(
      "packed_linear", {x, bias},
      ops::packed_linear(x.value(), weight, bias.defined() ? bias.value() : Tensor()), saves,
      [slots](const Backward& b) {
        Grads grads(2);
        if (b.needs(1)) grads[1] = ops::linear_backward_bias(b.dy());
        if (b.needs(0))
          grads[0] = ops::packed_linear_backward_input(
              b.dy(), slots.weight([&](int slot) { return b.saved(slot); }));
        return grads;
      },
      std::move(recipe));
}

}  // namespace frugal
