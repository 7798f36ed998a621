// LAMB: the direction of Adam, scaled for each parameter by the norm of its value, for large
// batches.
#pragma once
#include "optim/adam.h"

namespace frugal::optim {

struct LambOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  // If not set, parameters without weight decay (norms and biases, see decay_groups()) are not
  // scaled by their norm, as in the published runs. If set, they are scaled like all others.
  bool adapt_without_decay = false;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<options::Option<LambOptions>> list() {
    return {{keys::kBeta1, &LambOptions::beta1},
            {keys::kBeta2, &LambOptions::beta2},
            {keys::kEps, &LambOptions::eps}};
  }
};

// State: "m/<parameter>" and "v/<parameter>", of the parameter's shape.
// Errors: a beta outside [0, 1), eps not above 0.  Ref: You et al. 2020, algorithm 2.
class Lamb : public SlotOptimizer {
 public:
  explicit Lamb(const std::vector<ParameterGroup>& groups, const LambOptions& options = {});
  template <NamedParameters P>
  explicit Lamb(const P& parameters, const LambOptions& options = {})
      : Lamb(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.beta1 = checked_momentum(momentum); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  LambOptions options_;
};

}  // namespace frugal::optim
