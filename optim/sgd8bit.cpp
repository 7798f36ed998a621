#include "optim/optimizers.h"

#include "ops/optimizer/sgd8bit.h"

namespace frugal::optim {

std::vector<by_name::Option<Sgd8bitOptions>> Sgd8bitOptions::list() {
  return by_name::options_of(&Sgd8bitOptions::sgd, SgdOptions::list());
}

Sgd8bit::Sgd8bit(const std::vector<ParameterGroup>& groups, const Sgd8bitOptions& options)
    : SlotOptimizer("sgd8bit", groups, options.sgd.weight_decay), options_(options) {
  FRUGAL_CHECK(options.sgd.momentum > 0 && options.sgd.momentum < 1,
               "[sgd8bit] expected a momentum in (0, 1), got {}", options.sgd.momentum);
  check_blockwise_options("sgd8bit", options.state);
}

std::vector<SlotOptimizer::Part> Sgd8bit::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  if (!is_blockwise(options_.state, slot.name, slot.parameter))
    return {{"momentum", value.shape(), value.dtype()}};
  const int64_t n = value.numel();
  return {{"momentum8", {n}, DType::u8}, {"momentum_scales", {ops::state_blocks(n)}, DType::f32}};
}

void Sgd8bit::update(const std::vector<Update>& updates) {
  const SgdOptions& o = options_.sgd;
  std::vector<ops::SgdUpdate> whole;
  std::vector<ops::Sgd8bitUpdate> packed;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const ops::SgdStep step{u.lr, o.momentum, slot.weight_decay, o.nesterov};
    const Tensor& value = slot.parameter.value();
    const std::vector<Tensor>& parts = slot.parts;
    if (!is_blockwise(options_.state, slot.name, slot.parameter)) {
      whole.push_back({value, u.gradient(), parts[0], step});
      continue;
    }
    const ops::BlockwiseState velocity{parts[0], parts[1], ops::StateMap::with_sign};
    const RngKey key = rounding_key(options_.state, slot.name, slot.steps);
    packed.push_back({value, u.gradient(), velocity, step, key});
  }
  ops::sgd8bit_steps(packed);
  ops::sgd_steps(whole);
}

}  // namespace frugal::optim
