#include "optim/optimizers.h"

#include "ops/optimizer/adam8bit.h"

namespace frugal::optim {

std::vector<by_name::Option<Adam8bitOptions>> Adam8bitOptions::list() {
  return by_name::options_of(&Adam8bitOptions::adam, AdamOptions::list());
}

Adam8bit::Adam8bit(const std::vector<ParameterGroup>& groups, const Adam8bitOptions& options)
    : SlotOptimizer("adam8bit", groups, options.adam.weight_decay), options_(options) {
  check_adam_options("adam8bit", options.adam);
  check_blockwise_options("adam8bit", options.state);
}

std::vector<SlotOptimizer::Part> Adam8bit::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  if (!is_blockwise(options_.state, slot.name, slot.parameter))
    return {{"m", value.shape(), value.dtype()}, {"v", value.shape(), value.dtype()}};
  const int64_t n = value.numel(), scales = ops::state_blocks(n);
  return {{"m8", {n}, DType::u8},
          {"m_scales", {scales}, DType::f32},
          {"v8", {n}, DType::u8},
          {"v_scales", {scales}, DType::f32}};
}

void Adam8bit::update(const std::vector<Update>& updates) {
  const AdamOptions& o = options_.adam;
  std::vector<ops::AdamUpdate> whole;
  std::vector<ops::Adam8bitUpdate> packed;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const ops::AdamStep step{u.lr,        o.beta1,   o.beta2, o.eps, slot.weight_decay,
                             o.decoupled, slot.steps};
    const Tensor& value = slot.parameter.value();
    const std::vector<Tensor>& parts = slot.parts;
    if (!is_blockwise(options_.state, slot.name, slot.parameter)) {
      whole.push_back({value, u.gradient(), parts[0], parts[1], step});
      continue;
    }
    packed.push_back({value,
                      u.gradient(),
                      {parts[0], parts[1], ops::StateMap::with_sign},
                      {parts[2], parts[3], ops::StateMap::positive},
                      step,
                      rounding_key(options_.state, slot.name, slot.steps)});
  }
  ops::adam8bit_steps(packed);
  ops::adam_steps(whole);
}

}  // namespace frugal::optim
