// WrappingPolicy: a policy that decides as another one does and changes only how bytes are kept.
#pragma once
#include <memory>

#include "compress/policies/pack_plan.h"
#include "compress/policies/policy_roles.h"

namespace frugal::compress {

class WrappingPolicy : public SavePolicy {
 public:
  explicit WrappingPolicy(std::shared_ptr<SavePolicy> inner) : inner_(std::move(inner)) {
    FRUGAL_CHECK(inner_ != nullptr, "[compression] expected a policy to wrap, got none");
    PolicyRoles roles;
    inner_->add_roles(roles);
    plan_ = roles.plan;
  }
  bool lossy() const override { return inner_->lossy(); }
  int64_t slice_bytes() const override { return inner_->slice_bytes(); }
  bool packs_recomputed() const override { return inner_->packs_recomputed(); }
  BackwardObserver* observer() override { return inner_->observer(); }
  void add_roles(PolicyRoles& roles) override {
    roles.is_wrapped = true;
    inner_->add_roles(roles);
  }
  SavePolicy& inner() const { return *inner_; }

 protected:
  // The plan of the innermost policy; null if it plans nothing.
  PackPlan* plan() const { return plan_; }

 private:
  std::shared_ptr<SavePolicy> inner_;
  PackPlan* plan_ = nullptr;
};

}  // namespace frugal::compress
