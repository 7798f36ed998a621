// Adam and AdamW whose moments take 8 bits (ops/optimizer/blockwise.h): 2.03 bytes an element,
// not 8.
#pragma once
#include "optim/adam.h"

namespace frugal::optim {

struct Adam8bitOptions {
  AdamOptions adam = {};
  // Smaller parameters keep moments in their own dtype: they cost little and matter more.
  int64_t least_elements = 4096;
  // So do parameters whose name contains one of these. Embeddings are the usual ones: the gradients
  // of their rows differ in size by orders of magnitude. Names of fixed networks, as
  // {"embeddings.", "wte."}.
  std::vector<std::string> full_precision = {};
  // Of the rounding, drawn from the seed, the parameter's name and its count of steps.
  uint64_t seed = 0;
};

// State of a parameter of n elements: "m8/", "v8/" [n] u8 and "m_scales/", "v_scales/" [ceil(n /
// 256)] f32; of those in full precision "m/" and "v/", as Adam.
// Errors: as Adam; a negative least_elements.  Ref: Dettmers et al. 2022.
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
