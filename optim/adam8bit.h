// Adam and AdamW with 8-bit moments (ops/optimizer/blockwise.h): 2.03 bytes for each element
// instead of 8.
#pragma once
#include "optim/adam.h"

namespace frugal::optim {

struct Adam8bitOptions {
  AdamOptions adam = {};
  // Parameters with fewer elements keep moments in their own dtype: they need little memory, and
  // their precision matters more.
  int64_t least_elements = 4096;
  // Parameters whose name contains one of these texts keep moments in their own dtype, too. Usual
  // choices are embeddings, because the gradients of their rows differ in size by orders of
  // magnitude: {"embeddings.", "wte."}.
  std::vector<std::string> full_precision = {};
  // Seed of the stochastic rounding, which also depends on the parameter's name and its number of
  // steps.
  uint64_t seed = 0;
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

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  bool is_packed(const Slot& slot) const;
  Adam8bitOptions options_;
};

}  // namespace frugal::optim
