// Stochastic gradient descent with 8-bit momentum (ops/optimizer/blockwise.h): 1.02 bytes for each
// element instead of 4.
#pragma once
#include "optim/blockwise_options.h"
#include "optim/sgd.h"
#include "optim/slots.h"

namespace frugal::optim {

struct Sgd8bitOptions {
  SgdOptions sgd = {};
  BlockwiseOptions state = {};

  static std::vector<options::Option<Sgd8bitOptions>> list() {
    return options::options_of(&Sgd8bitOptions::sgd, SgdOptions::list());
  }
};

// State of a parameter of n elements: "momentum8/" [n] u8 and "momentum_scales/" [ceil(n / 256)]
// f32. State in full precision: "momentum/", as for Sgd.
// Errors: those of Sgd; a momentum of 0, because Sgd has no state then; a negative least_elements.
// Ref: Dettmers et al. 2022.
class Sgd8bit : public SlotOptimizer {
 public:
  explicit Sgd8bit(const std::vector<ParameterGroup>& groups, const Sgd8bitOptions& options = {});
  template <NamedParameters P>
  explicit Sgd8bit(const P& parameters, const Sgd8bitOptions& options = {})
      : Sgd8bit(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override {
    options_.sgd.momentum = checked_momentum(momentum);
  }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  Sgd8bitOptions options_;
};

}  // namespace frugal::optim
