#include "optim/optimizers.h"

#include "ops/optimizer/adam.h"
#include "optim/option_keys.h"
#include "optim/row_slices.h"

namespace frugal::optim {

std::vector<by_name::Option<AdamOptions>> AdamOptions::list() {
  return {{keys::kBeta1, &AdamOptions::beta1},
          {keys::kBeta2, &AdamOptions::beta2},
          {keys::kEps, &AdamOptions::eps}};
}

void check_adam_options(const char* op, const AdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2})
    FRUGAL_CHECK(beta >= 0 && beta < 1, "[{}] expected betas in [0, 1), got {}", op, beta);
  FRUGAL_CHECK(options.eps >= by_name::range::kLeastDivisor,
               "[{}] expected an eps of at least {}, got {}", op, by_name::range::kLeastDivisor,
               options.eps);
}

Adam::Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options)
    : SlotOptimizer("adam", groups, options.weight_decay), options_(options) {
  check_adam_options("adam", options);
}

std::vector<SlotOptimizer::Part> Adam::parts_of(const Slot& slot) const {
  const Tensor& value = slot.parameter.value();
  return {{"m", value.shape(), value.dtype()}, {"v", value.shape(), value.dtype()}};
}

void Adam::update(const std::vector<Update>& updates) {
  std::vector<ops::AdamUpdate> all;
  for (const Update& u : updates) {
    const Slot& slot = *u.slot;
    const Tensor &value = slot.parameter.value(), &m = slot.parts[0], &v = slot.parts[1];
    const ops::AdamStep step{u.lr,         options_.beta1,    options_.beta2,
                             options_.eps, slot.weight_decay, options_.decoupled,
                             slot.steps};
    if (!has_sparse_grad(slot.parameter)) {
      all.push_back({value, u.gradient(), m, v, step});
      continue;
    }
    for_row_slices(slot.parameter, [&](int64_t begin, int64_t end, const Tensor& gradient) {
      ops::adam_steps({{value.slice(0, begin, end), gradient, m.slice(0, begin, end),
                        v.slice(0, begin, end), step}});
    });
  }
  ops::adam_steps(all);
}

}  // namespace frugal::optim
