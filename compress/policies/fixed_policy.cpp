#include "compress/policies/fixed_policy.h"

#include "compress/policies/policy_roles.h"

namespace frugal::compress {

namespace {
// From this width on, the bias that a correction of second order leaves is small beside the noise.
constexpr int kCorrectedBits = 4;

QuantizeOptions codec_options(const FixedPolicyOptions& wanted) {
  QuantizeOptions options;
  if (wanted.bits != 0) options.bits = wanted.bits;
  options.group = wanted.group;
  options.axis = wanted.axis;
  options.rounding = wanted.rounding_here();
  options.seed = wanted.seed;
  return options;
}
}  // namespace

FixedPolicy::FixedPolicy(const FixedPolicyOptions& options)
    : bits_(options.bits),
      recipes_(options.recipes),
      corrected_(options.corrected),
      signs_(options.signs),
      chain_(options.chain),
      min_elements_(options.min_elements),
      slice_bytes_(options.slice_bytes_here()),
      codec_(std::make_unique<Quantizer>(codec_options(options))) {
  FRUGAL_CHECK(options.min_elements >= 0, "[compression] expected min_elements >= 0, got {}",
               options.min_elements);
  FRUGAL_CHECK(slice_bytes_ >= 0, "[compression] expected slice_bytes >= 0, got {}", slice_bytes_);
  FRUGAL_CHECK(options.chain >= 0, "[compression] expected chain >= 0, got {}", options.chain);
}

void FixedPolicy::set_bits(int bits) {
  FRUGAL_CHECK(bits_ > 0 && bits >= 1 && bits <= 16,
               "[compression] expected to change 1 to 16 bits to 1 to 16, got {} to {}", bits_,
               bits);
  QuantizeOptions options = codec_->options();
  options.bits = bits;
  codec_ = std::make_unique<Quantizer>(options);
  bits_ = bits;
}

Decision FixedPolicy::decide(const SaveInfo& info, const Tensor& value) {
  const bool held = value.storage()->category() == Category::input && !info.released;
  if (!is_floating(value.dtype()) || held) return {Decision::raw};
  if (info.lossless) {
    const bool replay = recipes_ && info.replay == Replay::exact && may_replay(info, value);
    return {replay ? Decision::replay : Decision::raw};
  }
  const Codec* codec = bits_ > 0 && pays(value) ? codec_.get() : nullptr;
  if (recipes_ && may_replay(info, value)) return {Decision::replay, codec};
  if (codec == nullptr) return {Decision::raw};
  return {Decision::pack, codec, signs_ == Signs::codes};
}

bool FixedPolicy::pays(const Tensor& value) const {
  if (value.numel() <= min_elements_) return false;
  return !groups_by_column(value.shape(), codec_->options().axis) ||
         rows_of(value.shape()) >= kLeastRows;
}

bool FixedPolicy::may_replay(const SaveInfo& info, const Tensor& value) const {
  if (static_cast<double>(info.replay_elements) > chain_ * static_cast<double>(value.numel()))
    return false;
  switch (info.replay) {
    case Replay::none:
      return false;
    case Replay::exact:
      return true;
    case Replay::unbiased:
      return bits_ > 0;
    case Replay::corrected:
      return corrected_ && bits_ >= kCorrectedBits;
    case Replay::biased:
      return false;
  }
  return false;
}

void FixedPolicy::add_roles(PolicyRoles& roles) { PolicyRoles::note(roles.adjustable, this); }

}  // namespace frugal::compress
