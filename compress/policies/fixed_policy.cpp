#include "compress/policies/fixed_policy.h"

#include <algorithm>
#include <array>

#include "compress/policies/policy_roles.h"
#include "compress/quantize/quantize.h"

namespace frugal::compress {

std::vector<by_name::Option<FixedPolicyOptions>> FixedPolicyOptions::list() {
  namespace range = by_name::range;
  using S = FixedPolicyOptions;
  using by_name::Value;
  constexpr int64_t kMany = int64_t{1} << 40;
  by_name::Range bytes = range::integer(0, kMany);
  bytes.is_bytes = true;
  const by_name::Range roundings = range::choice("auto, stochastic, dithered, nearest");
  const std::array order = {Rounding::stochastic, Rounding::dithered, Rounding::nearest};
  return {{{"recipes", range::flag(),
            "Rebuild cheap tensors from what is kept anyway, instead of keeping them."},
           &S::recipes},
          {{"signs", range::choice("codes, masks"),
            "Where the signs of relus are kept: in the codes of a neighbour, at no cost, or as "
            "masks of 1 bit."},
           &S::signs},
          {{"chain", range::number(0, 1e6),
            "How many times its own elements a recipe may rebuild on the way; 0: recipes start "
            "from what is kept."},
           &S::chain},
          {{"slice_bytes", range::or_nothing(bytes),
            "Backward unpacks and rebuilds tensors, and adds up gradients of weights, in slices "
            "of the batch of about so many bytes (\"1 MiB\"); 0: whole; null: 8 MiB, which caches "
            "hold, on CUDA 64 MiB."},
           &S::slice_bytes},
          {{"min_elements", range::integer(0, kMany),
            "Tensors of at most so many elements are kept as they are."},
           &S::min_elements},
          {{"group_size", range::multiple(8, 8, 1 << 16),
            "Values of one channel that share a minimum and a scale."},
           &S::group},
          {{"group_axis", range::choice("column, row, nchw"),
            "row: values that share them are neighbours in memory, of all channels, and signs are "
            "kept as masks; nchw: row, but column for images, as where these are kept by "
            "channels. To compare with, not for actnn and acgc."},
           &S::axis},
          {{"recomputed", range::choice("whole, packed"),
            "What recomputed blocks keep, their inputs, and what is saved while one is computed "
            "again. packed: in codes like the rest, as GACT's program does, which biases the "
            "gradient. To compare with."},
           &S::pack_recomputed},
          {{"rounding", roundings,
            "stochastic is unbiased; dithered is unbiased with half the variance, at the same "
            "bytes, for time where unpacking is bound by arithmetic; nearest is closer but "
            "biased; auto: dithered, but stochastic on CUDA and with acgc."},
           [=](S& s, const Value& value) {
             const size_t at = place_of(roundings, value.text());
             s.rounding = at == 0 ? std::nullopt : std::optional(order.at(at - 1));
           },
           [=](const S& s) {
             size_t at = 0;
             while (s.rounding && at < order.size() && order.at(at) != *s.rounding) ++at;
             return Value(choices_of(roundings).at(s.rounding ? at + 1 : 0));
           }}};
}

namespace {
// From this width on, one tensor of kCorrectedBits takes less than two tensors: 4 1/8 bits an
// element with what groups keep, against 2 (2 + 1/8).
constexpr int kLeastCorrecting = 2;

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
      pack_recomputed_(options.pack_recomputed && options.bits > 0),
      chain_(options.chain),
      min_elements_(options.min_elements),
      slice_bytes_(options.slice_bytes_here()),
      codec_(std::make_unique<Quantizer>(codec_options(options))) {
  FRUGAL_CHECK(options.min_elements >= 0, "[compression] expected min_elements >= 0, got {}",
               options.min_elements);
  FRUGAL_CHECK(slice_bytes_ >= 0, "[compression] expected slice_bytes >= 0, got {}", slice_bytes_);
  FRUGAL_CHECK(options.chain >= 0, "[compression] expected chain >= 0, got {}", options.chain);
}

FixedPolicy::~FixedPolicy() = default;

double FixedPolicy::fineness() const {
  return codec_->options().rounding == Rounding::nearest ? 0 : bits_;
}

void FixedPolicy::set_bits(int bits) {
  FRUGAL_CHECK(bits_ > 0 && bits >= 1 && bits <= 16,
               "[compression] expected to change 1 to 16 bits to 1 to 16, got {} to {}", bits_,
               bits);
  QuantizeOptions options = codec_->options();
  options.bits = bits;
  codec_ = std::make_unique<Quantizer>(options);
  wider_.clear();
  bits_ = bits;
}

Decision FixedPolicy::decide(const SaveInfo& info, const Tensor& value) {
  const bool held = value.storage()->category() == Category::input && !info.released;
  if (!is_floating(value.dtype()) || held) return {Decision::raw};
  if (info.lossless) {
    const bool rebuild = recipes_ && info.rebuilt == Rebuilt::exact && may_rebuild(info, value);
    return {rebuild ? Decision::rebuild : Decision::raw};
  }
  const Codec* codec =
      bits_ > 0 && pays(value) ? &codec_of(std::max(bits_, least_bits(info))) : nullptr;
  if (recipes_ && may_rebuild(info, value)) return {Decision::rebuild, codec};
  if (codec == nullptr) return {Decision::raw};
  return {Decision::pack, codec, signs_ == Signs::codes};
}

const Quantizer& FixedPolicy::codec_of(int bits) {
  if (bits == bits_) return *codec_;
  QuantizeOptions options = codec_->options();
  options.bits = bits;
  return wider_.try_emplace(bits, options).first->second;
}

int FixedPolicy::least_bits(const SaveInfo& info) const {
  // From kCorrectedBits on, the bias that a correction of second order leaves is small beside the
  // noise.
  return std::max(corrects(info) ? kCorrectedBits : 0, recipes_ ? info.source_bits : 0);
}

bool FixedPolicy::corrects(const SaveInfo& info) const {
  return info.curved && recipes_ && corrected_ && bits_ >= kLeastCorrecting &&
         codec_->options().rounding != Rounding::nearest;
}

bool FixedPolicy::pays(const Tensor& value) const {
  if (value.numel() <= min_elements_) return false;
  return !groups_by_column(value.shape(), codec_->options().axis) ||
         rows_of(value.shape()) >= kLeastRows;
}

bool FixedPolicy::may_rebuild(const SaveInfo& info, const Tensor& value) const {
  if (static_cast<double>(info.recipe_elements) > chain_ * static_cast<double>(value.numel()))
    return false;
  switch (info.rebuilt) {
    case Rebuilt::none:
      return false;
    case Rebuilt::exact:
      return true;
    case Rebuilt::unbiased:
      return bits_ > 0 && info.rebuilt_with(bits_) == Rebuilt::unbiased;
    case Rebuilt::corrected:
      return corrected_ &&
             (bits_ >= kCorrectedBits || (bits_ >= kLeastCorrecting && info.told_curved));
    case Rebuilt::biased:
      return false;
  }
  return false;
}

void FixedPolicy::add_roles(PolicyRoles& roles) { PolicyRoles::note(roles.adjustable, this); }

}  // namespace frugal::compress
