#include "optim/optimizers.h"

#include "ops/optimizer/lion.h"
#include "optim/option_keys.h"
#include "optim/row_slices.h"

namespace frugal::optim {

std::vector<by_name::Option<LionOptions>> LionOptions::list() {
  return {{keys::kBeta1, &LionOptions::beta1}, {keys::kBeta2, &LionOptions::beta2}};
}

Lion::Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options)
    : SlotOptimizer("lion", groups, options.weight_decay), options_(options) {
  for (const double beta : {options.beta1, options.beta2})
    FRUGAL_CHECK(beta >= 0 && beta < 1, "[lion] expected betas in [0, 1), got {}", beta);
  if (options.state) check_blockwise_options("lion", *options.state);
}

std::vector<SlotOptimizer::Part> Lion::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  if (!is_packed(slot)) return {{"m", value.shape(), value.dtype()}};
  const int64_t n = value.numel();
  return {{"m8", {n}, DType::u8}, {"m_scales", {ops::state_blocks(n)}, DType::f32}};
}

void Lion::update(const std::vector<Update>& updates) {
  std::vector<ops::LionUpdate> whole;
  std::vector<ops::Lion8bitUpdate> packed;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const ops::LionStep step{u.lr, options_.beta1, options_.beta2, slot.weight_decay};
    const Tensor &value = slot.parameter.value(), &m = slot.parts[0];
    if (is_packed(slot)) {
      const ops::BlockwiseState state{m, slot.parts[1], ops::StateMap::with_sign};
      const RngKey key = rounding_key(*options_.state, slot.name, slot.steps);
      packed.push_back({value, u.gradient(), state, step, key});
    } else if (has_sparse_grad(slot.parameter)) {
      for_row_slices(slot.parameter, [&](int64_t begin, int64_t end, const Tensor& gradient) {
        ops::lion_steps({{value.slice(0, begin, end), gradient, m.slice(0, begin, end), step}});
      });
    } else {
      whole.push_back({value, u.gradient(), m, step});
    }
  }
  ops::lion8bit_steps(packed);
  ops::lion_steps(whole);
}

}  // namespace frugal::optim
