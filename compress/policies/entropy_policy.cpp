#include "compress/policies/entropy_policy.h"

namespace frugal::compress {
namespace {

// Entropy coding that keeps the limits of a plan.
class PlannedEntropy final : public Codec {
 public:
  PlannedEntropy(const Codec& inner, const EntropyOptions& options, PackPlan& plan)
      : inner_(inner), options_(options), plan_(plan) {}

  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo& info) const override {
    const std::optional<int64_t> most = plan_.keeping(info.seq).most_bytes;
    std::unique_ptr<Packed> packed = inner_.pack(tensor, info);
    if (tensor.device() == kMeta) {
      const int64_t bytes = most ? *most : coded_bytes(*packed);
      return coded_as(std::move(packed), bytes, options_);
    }
    packed = entropy_code(std::move(packed), options_);
    const std::optional<int> width = plan_.width(info.seq);
    if (!width) return packed;
    int bits = *width;
    plan_.took(info.seq, bits, coded_bytes(*packed));
    while (most && coded_bytes(*packed) > *most && bits > 1) {
      packed = nullptr;  // before memory is taken again
      packed = entropy_code(plan_.pack_again(tensor, info, --bits), options_);
      plan_.took(info.seq, bits, coded_bytes(*packed));
    }
    return packed;
  }

 private:
  const Codec& inner_;
  EntropyOptions options_;
  PackPlan& plan_;
};

}  // namespace

EntropyPolicy::EntropyPolicy(std::shared_ptr<SavePolicy> inner, const EntropyOptions& options)
    : WrappingPolicy(std::move(inner)), options_(options) {
  if (plan() != nullptr) plan()->set_codes();
}

Decision EntropyPolicy::decide(const SaveInfo& info, const Tensor& value) {
  Decision decision = inner().decide(info, value);
  if (decision.what != Decision::pack) return decision;
  if (plan() != nullptr && !plan()->keeping(info.seq).coded) return decision;
  std::unique_ptr<Codec>& codec = codecs_[decision.codec];
  if (codec == nullptr && plan() != nullptr)
    codec = std::make_unique<PlannedEntropy>(*decision.codec, options_, *plan());
  if (codec == nullptr) {
    const std::shared_ptr<const Codec> inner(std::shared_ptr<void>(), decision.codec);  // not ours
    codec = std::make_unique<Entropy>(inner, options_);
  }
  decision.codec = codec.get();
  return decision;
}

}  // namespace frugal::compress
