#include "compress/policies/entropy_policy.h"

namespace frugal::compress {

EntropyPolicy::EntropyPolicy(std::shared_ptr<SavePolicy> inner, const EntropyOptions& options)
    : WrappingPolicy(std::move(inner)), options_(options) {}

Decision EntropyPolicy::decide(const SaveInfo& info, const Tensor& value) {
  Decision decision = inner().decide(info, value);
  if (decision.what == Decision::pack) {
    const std::shared_ptr<const Codec> codec(std::shared_ptr<void>(), decision.codec);  // not ours
    decision.codec = &codecs_.try_emplace(decision.codec, codec, options_).first->second;
  }
  return decision;
}

}  // namespace frugal::compress
