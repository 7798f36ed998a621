// WrappingPolicy: a policy that decides as another does, up to how what is kept is kept.
#pragma once
#include <memory>

#include "autograd/saved_tensor.h"

namespace frugal::compress {

class WrappingPolicy : public SavePolicy {
 public:
  explicit WrappingPolicy(std::shared_ptr<SavePolicy> inner) : inner_(std::move(inner)) {
    FRUGAL_CHECK(inner_ != nullptr, "[compression] expected a policy to wrap, got none");
  }
  bool lossy() const override { return inner_->lossy(); }
  bool rebuilds_signs() const override { return inner_->rebuilds_signs(); }
  int64_t slice_bytes() const override { return inner_->slice_bytes(); }
  BackwardObserver* observer() override { return inner_->observer(); }
  SavePolicy& inner() const { return *inner_; }

 private:
  std::shared_ptr<SavePolicy> inner_;
};

}  // namespace frugal::compress
