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

void Adam::update(const Slot& slot, const Tensor& gradient, double lr) {
  ops::adam_step(slot.parameter.value(), gradient, slot.parts[0], slot.parts[1],
                 {lr, options_.beta1, options_.beta2, options_.eps, slot.weight_decay,
                  options_.decoupled, slot.steps});
}

}  // namespace frugal::optim
