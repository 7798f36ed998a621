// OffloadPolicy: any policy, with what it keeps moved to a file.
//
// Packed tensors go with their codec's payload. What the policy keeps raw goes too, if it has more
// than min_elements; so do values that a recipe passes through on the way and that would wait raw.
// Raw ones are not copied: the window holds the tensor itself, which lives on beside it as long as
// forward or backward use it, and which nobody may write to until then. The batch stays: it is in
// memory anyway. While the policy has packed nothing in a step, all that the step keeps is exact,
// and so are the recipes that it is offered, which it may then use as if nothing had been moved.
//
// Thread safety: as SavePolicy. Graphs may outlive it as they may outlive the policy inside.
#pragma once
#include "compress/offload/offload.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::compress {

class OffloadPolicy final : public WrappingPolicy {
 public:
  // Errors: those of PayloadStore; min_elements below 0.
  OffloadPolicy(std::shared_ptr<SavePolicy> inner, const OffloadOptions& options,
                int64_t min_elements = 16384);
  Decision decide(const SaveInfo& info, const Tensor& value) override;

  const PayloadStore& store() const { return *store_; }

 private:
  bool may_move(const Tensor& value) const;
  const Codec* moved(const Codec& codec);

  std::shared_ptr<PayloadStore> store_;
  int64_t min_elements_;
  bool exact_ = true;  // nothing was packed in this step yet
  std::unique_ptr<Codec> raw_;
  std::map<const Codec*, Offload> codecs_;
};

}  // namespace frugal::compress
