// OffloadPolicy: any policy, with what it keeps moved to a file.
//
// For each packed tensor, the payload of its codec is moved. Raw tensors of more than min_elements
// are moved too, and so are raw values of that size that a recipe passes through on the way. A raw
// tensor is not copied: the window holds the tensor itself. It stays in memory as long as forward
// or backward use it, and nobody may write to it until then. The batch is not moved, because it is
// in memory anyway.
//
// A raw tensor that is moved loses nothing. So recipes that read only such tensors stay exact, and
// ops compute what they compute without a file, to the same bits.
//
// A policy with a PackPlan says which of its packed tensors are moved. Nothing else is.
//
// Thread safety: as SavePolicy. Graphs may outlive it as they may outlive the policy inside.
#pragma once
#include "compress/offload/offload.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::compress {

class OffloadPolicy final : public WrappingPolicy {
 public:
  // buffer: see PayloadStore. Errors: those of PayloadStore; min_elements below 0.
  OffloadPolicy(std::shared_ptr<SavePolicy> inner, const OffloadOptions& options,
                int64_t min_elements = FixedPolicyOptions{}.min_elements, Device buffer = kCpu);
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  void add_roles(PolicyRoles& roles) override;

  const PayloadStore& store() const { return *store_; }

 private:
  bool may_move(const SaveInfo& info, const Tensor& value) const;
  const Codec* moved(const Codec& codec);

  std::shared_ptr<PayloadStore> store_;
  int64_t min_elements_;
  std::unique_ptr<Codec> raw_;
  std::map<const Codec*, Offload> codecs_;
};

}  // namespace frugal::compress
