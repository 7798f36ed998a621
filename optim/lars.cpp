#include "optim/optimizers.h"

#include "ops/optimizer/lars.h"
#include "optim/option_keys.h"

namespace frugal::optim {

std::vector<by_name::Option<LarsOptions>> LarsOptions::list() {
  return {{keys::kMomentum, &LarsOptions::momentum},
          {{"trust", by_name::range::positive(10),
            "lars: how far a step of rate 1 moves a parameter, relative to its norm. Norms and "
            "biases take the rate as it is."},
           &LarsOptions::trust}};
}

Lars::Lars(const std::vector<ParameterGroup>& groups, const LarsOptions& options)
    : SlotOptimizer("lars", groups, options.weight_decay), options_(options) {
  FRUGAL_CHECK(options.momentum >= 0 && options.momentum < 1,
               "[lars] expected a momentum in [0, 1), got {}", options.momentum);
  FRUGAL_CHECK(options.trust > 0, "[lars] expected a trust above 0, got {}", options.trust);
}

std::vector<SlotOptimizer::Part> Lars::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  return {{"velocity", value.shape(), value.dtype()}};
}

void Lars::update(const std::vector<Update>& updates) {
  std::vector<ops::LarsUpdate> all;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const Tensor& value = slot.parameter.value();
    all.push_back({value,
                   u.gradient(),
                   slot.parts[0],
                   {u.lr, options_.momentum, slot.weight_decay, options_.trust,
                    options_.adapt_one_dimensional || !is_one_dimensional(slot.parameter)}});
  }
  ops::lars_steps(all);
}

}  // namespace frugal::optim
