// RebuiltSigns: another policy without its signs. They are taken from rebuilt values, which biases
// gradients. Only studies use this, to show the bias.
#pragma once
#include "compress/policies/wrapping_policy.h"

namespace frugal::lab {

class RebuiltSigns final : public compress::WrappingPolicy {
 public:
  // `inner` keeps signs in masks.
  using WrappingPolicy::WrappingPolicy;
  bool rebuilds_signs() const override { return true; }
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    SaveInfo seen = info;
    if (seen.replay == Replay::biased) seen.replay = Replay::unbiased;  // it is used all the same
    return inner().decide(seen, value);
  }
};

}  // namespace frugal::lab
