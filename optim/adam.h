// Adam and AdamW as PyTorch defines them, without amsgrad. The moments have the dtype of the
// parameters.
#pragma once
#include "optim/option_keys.h"
#include "optim/slots.h"

namespace frugal::optim {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  bool decoupled = true;    // AdamW; else the decay is a part of the gradient (Adam)
  double weight_decay = 0;  // the decay of groups that name none

  static std::vector<options::Option<AdamOptions>> list() {
    return {{keys::kBeta1, &AdamOptions::beta1},
            {keys::kBeta2, &AdamOptions::beta2},
            {keys::kEps, &AdamOptions::eps}};
  }
};

// Errors: a beta outside [0, 1), eps not above 0. Messages name `op`.
void check_adam_options(const char* op, const AdamOptions& options);

// State: "m/<parameter>" and "v/<parameter>", of the parameter's shape: 8 bytes for each element in
// f32.
// Ref: Kingma & Ba 2015; Loshchilov & Hutter 2019.
class Adam : public SlotOptimizer {
 public:
  explicit Adam(const std::vector<ParameterGroup>& groups, const AdamOptions& options = {});
  template <NamedParameters P>
  explicit Adam(const P& parameters, const AdamOptions& options = {})
      : Adam(one_group(parameters), options) {}
  std::unique_ptr<Optimizer> without_state() const override { return fresh(*this); }
  void set_momentum(double momentum) override { options_.beta1 = checked_momentum(momentum); }
  bool elementwise() const override { return true; }

 protected:
  std::vector<Part> parts_of(const Slot& slot) const override;
  void update(const std::vector<Update>& updates) override;

 private:
  AdamOptions options_;
};

}  // namespace frugal::optim
