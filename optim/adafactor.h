// Adafactor: keeps the second moments of a matrix as one row and one column, and no first moments.
// So it has almost no state.
#pragma once
#include "optim/option_keys.h"
#include "optim/slots.h"

namespace frugal::optim {

struct AdafactorOptions {
  double decay_rate = 0.8;  // beta2 of step t is 1 - t^-decay_rate
  double clip = 1;          // the largest allowed root mean square of a direction
  // If set, a step is the rate times the root mean square of the parameter (at least 1e-3). The
  // rate is then relative; the paper uses min(1e-2, 1 / sqrt(t)). If not, a step is the rate alone.
  bool scale_parameter = true;
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<options::Option<AdafactorOptions>> list() { return {}; }
};

// Weight decay is decoupled, as in AdamW. State of a parameter with at least 2 axes:
// "r/<parameter>" [size(0)] and "c/<parameter>" [the other axes]. State of any other parameter:
// "v/<parameter>" of its shape.
// Errors: decay_rate or clip not above 0.  Ref: Shazeer & Stern 2018.
class Adafactor : public SlotOptimizer {
 public:
  explicit Adafactor(const std::vector<ParameterGroup>& groups,
                     const AdafactorOptions& options = {});
  template <NamedParameters P>
  explicit Adafactor(const P& parameters, const AdafactorOptions& options = {})
      : Adafactor(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  AdafactorOptions options_;
};

}  // namespace frugal::optim
