#include "optim/adam.h"

#include "ops/adam.h"

namespace frugal::optim {

void check_adam_options(const char* op, const AdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2})
    FRUGAL_CHECK(beta >= 0 && beta < 1, "[{}] expected betas in [0, 1), got {}", op, beta);
  FRUGAL_CHECK(options.eps > 0, "[{}] expected an eps above 0, got {}", op, options.eps);
}

Adam::Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options)
    : SlotOptimizer("adam", groups), options_(options) {
  check_adam_options("adam", options);
}

std::vector<SlotOptimizer::Part> Adam::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  return {{"m", value.shape(), value.dtype()}, {"v", value.shape(), value.dtype()}};
}

void Adam::update(const std::vector<Update>& updates) {
  std::vector<ops::AdamUpdate> all;
  for (const Update& u : updates)
    all.push_back({u.slot->parameter.value(),
                   u.gradient(),
                   u.slot->parts[0],
                   u.slot->parts[1],
                   {u.lr, options_.beta1, options_.beta2, options_.eps, u.slot->weight_decay,
                    options_.decoupled, u.slot->steps}});
  ops::adam_steps(all);
}

}  // namespace frugal::optim
