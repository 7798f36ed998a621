#include "optim/optimizers.h"

#include <algorithm>

#include "ops/optimizer/adafactor.h"

namespace frugal::optim {

std::vector<by_name::Option<AdafactorOptions>> AdafactorOptions::list() { return {}; }

Adafactor::Adafactor(const std::vector<ParameterGroup>& groups, const AdafactorOptions& options)
    : SlotOptimizer("adafactor", groups, options.weight_decay), options_(options) {
  FRUGAL_CHECK(options.decay_rate > 0, "[adafactor] expected a decay_rate above 0, got {}",
               options.decay_rate);
  FRUGAL_CHECK(options.clip > 0, "[adafactor] expected a clip above 0, got {}", options.clip);
}

std::vector<SlotOptimizer::Part> Adafactor::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  if (value.dim() < 2) return {{"v", value.shape(), value.dtype()}};
  const int64_t rows = value.size(0);
  return {{"r", {rows}, value.dtype()},
          {"c", {value.numel() / std::max<int64_t>(rows, 1)}, value.dtype()}};
}

void Adafactor::update(const std::vector<Update>& updates) {
  std::vector<ops::AdafactorUpdate> all;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    ops::AdafactorStep step;
    step.lr = u.lr;
    step.decay_rate = options_.decay_rate;
    step.clip = options_.clip;
    step.scale_parameter = options_.scale_parameter;
    step.weight_decay = slot.weight_decay;
    step.step = slot.steps;
    const bool factored = slot.parts.size() == 2;
    all.push_back({slot.parameter.value(), u.gradient(), factored ? slot.parts[0] : Tensor(),
                   slot.parts.back(), step});
  }
  ops::adafactor_steps(all);
}

}  // namespace frugal::optim
