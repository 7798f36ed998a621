#include "optim/optimizers.h"

#include "ops/optimizer/adam.h"
#include "optim/option_keys.h"

namespace frugal::optim {

std::vector<by_name::Option<LambOptions>> LambOptions::list() {
  return {{keys::kBeta1, &LambOptions::beta1},
          {keys::kBeta2, &LambOptions::beta2},
          {keys::kEps, &LambOptions::eps}};
}

Lamb::Lamb(const std::vector<ParameterGroup>& groups, const LambOptions& options)
    : SlotOptimizer("lamb", groups, options.weight_decay), options_(options) {
  check_adam_options("lamb", {options.beta1, options.beta2, options.eps});
}

std::vector<SlotOptimizer::Part> Lamb::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  return {{"m", value.shape(), value.dtype()}, {"v", value.shape(), value.dtype()}};
}

void Lamb::update(const std::vector<Update>& updates) {
  std::vector<ops::LambUpdate> all;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    all.push_back(
        {slot.parameter.value(),
         u.gradient(),
         slot.parts[0],
         slot.parts[1],
         {u.lr, options_.beta1, options_.beta2, options_.eps, slot.weight_decay, true, slot.steps},
         options_.adapt_one_dimensional || !is_one_dimensional(slot.parameter)});
  }
  ops::lamb_steps(all);
}

}  // namespace frugal::optim
