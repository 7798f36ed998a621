// A profile of widths: how many bytes each packed tensor of a run took. Steps on `meta` count with
// it where widths depend on values, which are not there (AC-GC, entropy coding, adaptive widths).
//
// Thread safety: as SavePolicy. Both policies must outlive the graphs they decided for.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "compress/policies/wrapping_policy.h"

namespace frugal::compress {

struct WidthProfile {
  struct Tensor {
    std::string op;  // name of the op that saved it
    int slot = 0;    // the op's slot that holds it
    int64_t elements = 0, bytes = 0;
    double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(elements); }
    bool operator==(const Tensor&) const = default;
  };
  std::map<uint64_t, Tensor> tensors;  // by SaveInfo::seq

  double average_bits() const;  // over all elements, with metadata; 0: no tensors
  bool operator==(const WidthProfile&) const = default;
};

// Decides as the policy inside and notes the bytes of what is packed. A policy whose payloads are
// moved to a file is not to be metered: it has none when they are noted.
class MeteringPolicy final : public WrappingPolicy {
 public:
  explicit MeteringPolicy(std::shared_ptr<SavePolicy> inner);  // Errors: no policy
  ~MeteringPolicy() override;
  Decision decide(const SaveInfo& info, const Tensor& value) override;
  const WidthProfile& profile() const { return profile_; }  // profile of the last step

 private:
  class Meter;
  WidthProfile profile_;
  std::map<const Codec*, std::unique_ptr<Meter>> codecs_;
};

// Decides as the policy inside. On `meta`, what is packed takes as many bits for each element as
// the profile says, or the profile's average if the profile does not have the tensor: the run that
// was metered may have kept it raw, because its batches were smaller. On other devices nothing
// changes, and in a first step (Learner::set_first_on_meta()) neither.
class ProfiledPolicy final : public WrappingPolicy {
 public:
  // Errors: no policy; a profile without tensors; a tensor without elements.
  ProfiledPolicy(std::shared_ptr<SavePolicy> inner, WidthProfile profile);
  ~ProfiledPolicy() override;
  // Errors, when packing on meta: another op saves the tensor than in the profile.
  Decision decide(const SaveInfo& info, const Tensor& value) override;

 private:
  class Resizer;
  WidthProfile profile_;
  double average_ = 0;
  const Learner* learner_ = nullptr;  // in the policy inside; null: nothing learns
  std::map<const Codec*, std::unique_ptr<Resizer>> codecs_;
};

}  // namespace frugal::compress
