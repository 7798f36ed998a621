// EntropyPolicy: any policy, with the codes of what it packs coded by their entropy where that
// pays.
//
// What a recipe passes through on the way waits as the policy inside says: it lives for moments.
// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
#pragma once
#include <map>

#include "compress/entropy/entropy.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::compress {

class EntropyPolicy final : public WrappingPolicy {
 public:
  explicit EntropyPolicy(std::shared_ptr<SavePolicy> inner, const EntropyOptions& options = {});
  Decision decide(const SaveInfo& info, const Tensor& value) override;

 private:
  EntropyOptions options_;
  std::map<const Codec*, Entropy> codecs_;
};

}  // namespace frugal::compress
