// EntropyPolicy: any policy, with the codes of what it packs coded by their entropy where that
// saves bytes.
//
// A policy with a PackPlan says which tensors are coded, and how many bytes each may take. A tensor
// that would take more is packed again at fewer bits, one bit less each time, until it fits or has
// 1 bit. So the plan's limits hold whatever the values are. On `meta`, where there are no values, a
// tensor with a limit takes just so many bytes.
//
// Tensors that a recipe passes through are not coded: they live for moments.
// Thread safety: as SavePolicy. Must outlive the graphs it decided for.
#pragma once
#include <map>

#include "compress/entropy/entropy.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::compress {

class EntropyPolicy final : public WrappingPolicy {
 public:
  // Errors: those of Entropy.
  explicit EntropyPolicy(std::shared_ptr<SavePolicy> inner, const EntropyOptions& options = {});
  Decision decide(const SaveInfo& info, const Tensor& value) override;

 private:
  EntropyOptions options_;
  std::map<const Codec*, std::unique_ptr<Codec>> codecs_;
};

}  // namespace frugal::compress
