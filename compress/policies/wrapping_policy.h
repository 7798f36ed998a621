// Policies that stand in front of another one. A StandInPolicy does so in some passes, a
// WrappingPolicy in all of them.
#pragma once
#include <memory>

#include "compress/policies/pack_plan.h"
#include "compress/policies/policy_roles.h"

namespace frugal::compress {

// Answers as another policy does in all that shapes a pass. A derived class changes decide(). The
// other policy learns nothing from such a pass: it sees no gradients, and its roles are hidden.
class StandInPolicy : public SavePolicy {
 public:
  // `inner` outlives this.
  explicit StandInPolicy(SavePolicy& inner) : inner_(inner) {}
  bool lossy() const override { return inner_.lossy(); }
  int64_t slice_bytes() const override { return inner_.slice_bytes(); }
  bool packs_recomputed() const override { return inner_.packs_recomputed(); }
  SavePolicy& inner() const { return inner_; }

 private:
  SavePolicy& inner_;
};

// Owns another policy, decides as it does, and changes only how bytes are kept.
class WrappingPolicy : public StandInPolicy {
 public:
  explicit WrappingPolicy(std::shared_ptr<SavePolicy> inner)
      : StandInPolicy(checked(inner)), owned_(std::move(inner)) {
    PolicyRoles roles;
    owned_->add_roles(roles);
    plan_ = roles.plan;
  }
  BackwardObserver* observer() override { return inner().observer(); }
  void add_roles(PolicyRoles& roles) override {
    roles.is_wrapped = true;
    inner().add_roles(roles);
  }

 protected:
  // The plan of the innermost policy; null if it plans nothing.
  PackPlan* plan() const { return plan_; }

 private:
  static SavePolicy& checked(const std::shared_ptr<SavePolicy>& inner) {
    FRUGAL_CHECK(inner != nullptr, "[compression] expected a policy to wrap, got none");
    return *inner;
  }

  std::shared_ptr<SavePolicy> owned_;
  PackPlan* plan_ = nullptr;
};

}  // namespace frugal::compress
