// Adafactor: second moments of matrices as a row and a column, no first moments: next to no state.
#pragma once
#include "optim/slots.h"

namespace frugal::optim {

struct AdafactorOptions {
  double decay_rate = 0.8;  // beta2 of step t is 1 - t^-decay_rate
  double clip = 1;          // the largest root mean square of a direction
  // Steps are the rate times the parameter's root mean square (at least 1e-3), so that the rate is
  // relative: the paper's is min(1e-2, 1 / sqrt(t)). Else the rate alone.
  bool scale_parameter = true;
  double weight_decay = 0;  // of groups that name none
};

// Weight decay is decoupled, as AdamW's. State: "r/<parameter>" [size(0)] and "c/<parameter>" [the
// rest] of parameters with at least 2 axes, "v/<parameter>" like the parameter of the others.
// Errors: decay_rate or clip not above 0.  Ref: Shazeer & Stern 2018.
class Adafactor : public SlotOptimizer {
 public:
  explicit Adafactor(const std::vector<ParameterGroup>& groups,
                     const AdafactorOptions& options = {});
  template <NamedParameters P>
  explicit Adafactor(const P& parameters, const AdafactorOptions& options = {})
      : Adafactor(one_group(parameters), options) {}

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  AdafactorOptions options_;
};

}  // namespace frugal::optim
