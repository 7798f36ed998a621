// WrappingPolicy: a policy that decides as another one does and changes only how bytes are kept.
#pragma once
#include <memory>

#include "compress/policies/pack_plan.h"

namespace frugal::compress {

class WrappingPolicy : public SavePolicy {
 public:
  explicit WrappingPolicy(std::shared_ptr<SavePolicy> inner) : inner_(std::move(inner)) {
    FRUGAL_CHECK(inner_ != nullptr, "[compression] expected a policy to wrap, got none");
    const auto* around = dynamic_cast<WrappingPolicy*>(inner_.get());
    plan_ = around != nullptr ? around->plan_ : dynamic_cast<PackPlan*>(inner_.get());
  }
  bool lossy() const override { return inner_->lossy(); }
  int64_t slice_bytes() const override { return inner_->slice_bytes(); }
  BackwardObserver* observer() override { return inner_->observer(); }
  SavePolicy& inner() const { return *inner_; }

 protected:
  // The plan of the innermost policy; null if it plans nothing.
  PackPlan* plan() const { return plan_; }

 private:
  std::shared_ptr<SavePolicy> inner_;
  PackPlan* plan_ = nullptr;
};

}  // namespace frugal::compress
