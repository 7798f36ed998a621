// Adam and AdamW with 8-bit moments (ops/optimizer/blockwise.h): 2.03 bytes for each element
// instead of 8.
#pragma once
#include "optim/adam.h"
#include "optim/blockwise_options.h"

namespace frugal::optim {

struct Adam8bitOptions {
  AdamOptions adam = {};
  BlockwiseOptions state = {};

  static std::vector<options::Option<Adam8bitOptions>> list() {
    return options::options_of(&Adam8bitOptions::adam, AdamOptions::list());
  }
};

// State of a parameter of n elements: "m8/", "v8/" [n] u8 and "m_scales/", "v_scales/" [ceil(n /
// 256)] f32. State in full precision: "m/" and "v/", as for Adam.
// Errors: those of Adam; a negative least_elements.  Ref: Dettmers et al. 2022.
class Adam8bit : public SlotOptimizer {
 public:
  explicit Adam8bit(const std::vector<ParameterGroup>& groups, const Adam8bitOptions& options = {});
  template <NamedParameters P>
  explicit Adam8bit(const P& parameters, const Adam8bitOptions& options = {})
      : Adam8bit(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.adam.beta1 = checked_momentum(momentum); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  Adam8bitOptions options_;
};

}  // namespace frugal::optim
