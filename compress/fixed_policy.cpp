#include "compress/fixed_policy.h"

#include <array>
#include <string>

namespace frugal::compress {

namespace {
constexpr std::array<Level, 4> kLevels = {{{"L0", 0, "activations are kept raw"},
                                           {"L1", 4, "activations in 4 bits"},
                                           {"L1.1", 8, "activations in 8 bits"},
                                           {"L1.2", 2, "activations in 2 bits"}}};

QuantizeOptions codec_options(const Level& level, const FixedPolicyOptions& wanted) {
  QuantizeOptions options;
  if (level.bits > 0) options.bits = level.bits;
  options.group = wanted.group;
  options.rounding = wanted.rounding;
  options.seed = wanted.seed;
  return options;
}
}  // namespace

std::span<const Level> levels() { return kLevels; }

const Level& parse_level(std::string_view name) {
  std::string known;
  for (const Level& level : kLevels) {
    if (level.name == name) return level;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", level.name, level.summary);
  }
  throw Error(fmt::format("[compression] expected a level of {}, got \"{}\"", known, name));
}

FixedPolicy::FixedPolicy(const FixedPolicyOptions& options)
    : level_(parse_level(options.level)),
      recipes_(options.recipes),
      min_elements_(options.min_elements),
      codec_(codec_options(level_, options)) {
  FRUGAL_CHECK(options.min_elements >= 0, "[compression] expected min_elements >= 0, got {}",
               options.min_elements);
}

Decision FixedPolicy::decide(const SaveInfo& info, const Tensor& value) {
  if (!is_floating(value.dtype()) || value.storage()->category() == Category::input)
    return {Decision::raw};
  const bool lossy = level_.bits > 0;
  if (recipes_ && (info.replay == Replay::exact || (lossy && info.replay == Replay::unbiased)))
    return {Decision::replay};
  if (!lossy || value.numel() <= min_elements_) return {Decision::raw};
  return {Decision::pack, &codec_};
}

}  // namespace frugal::compress
