// LARS: SGD with momentum whose rate is, for each parameter, relative to the parameter's norm, for
// large batches.
#pragma once
#include "optim/option_keys.h"
#include "optim/slots.h"

namespace frugal::optim {

struct LarsOptions {
  double momentum = 0.9;
  double trust = 0.001;  // how far a step may move a parameter, relative to its norm
  // If not set, parameters of at most one axis (norms and biases) take the rate as it is, as in
  // the published runs; decay_groups() leaves them without weight decay. If set, they are scaled
  // like all others.
  bool adapt_one_dimensional = false;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<options::Option<LarsOptions>> list() {
    return {{keys::kMomentum, &LarsOptions::momentum},
            {{"trust", options::range::positive(10),
              "lars: how far a step of rate 1 moves a parameter, relative to its norm. Norms and "
              "biases take the rate as it is."},
             &LarsOptions::trust}};
  }
};

// State: "velocity/<parameter>", of the parameter's shape. It holds whole steps, rates included.
// Errors: a momentum outside [0, 1), trust not above 0.  Ref: You, Gitman, Ginsburg 2017.
class Lars : public SlotOptimizer {
 public:
  explicit Lars(const std::vector<ParameterGroup>& groups, const LarsOptions& options = {});
  template <NamedParameters P>
  explicit Lars(const P& parameters, const LarsOptions& options = {})
      : Lars(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.momentum = checked_momentum(momentum); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  LarsOptions options_;
};

}  // namespace frugal::optim
