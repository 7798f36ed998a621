// Lion: each element moves by the learning rate, in the direction of the sign of a mean of
// gradients. Its state is one moment, in full precision or in 8 bits (1.02 bytes for each element).
// Usual rates are 3 to 10 times lower than AdamW's, and the weight decay as many times higher.
#pragma once
#include <optional>

#include "optim/blockwise_options.h"
#include "optim/option_keys.h"
#include "optim/slots.h"

namespace frugal::optim {

struct LionOptions {
  double beta1 = 0.9;                          // the share of the moment in the direction
  double beta2 = 0.99;                         // the decay of the moment
  double weight_decay = 0;                     // the decay of groups that name none
  std::optional<BlockwiseOptions> state = {};  // set: the moment has 8 bits

  static std::vector<options::Option<LionOptions>> list() {
    return {{keys::kBeta1, &LionOptions::beta1}, {keys::kBeta2, &LionOptions::beta2}};
  }
};

// Weight decay is decoupled, as in AdamW. State: "m/<parameter>" of the parameter's shape; in 8
// bits "m8/" [n] u8 and "m_scales/" [ceil(n / 256)] f32.
// Errors: a beta outside [0, 1); those of check_blockwise_options().  Ref: Chen et al. 2023;
// Dettmers et al. 2022.
class Lion : public SlotOptimizer {
 public:
  explicit Lion(const std::vector<ParameterGroup>& groups, const LionOptions& options = {});
  template <NamedParameters P>
  explicit Lion(const P& parameters, const LionOptions& options = {})
      : Lion(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.beta1 = checked_momentum(momentum); }
  bool elementwise() const override { return !options_.state; }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  bool is_packed(const Slot& slot) const {
    return options_.state && is_blockwise(*options_.state, slot.name, slot.parameter);
  }
  LionOptions options_;
};

}  // namespace frugal::optim
