#include "apps/config/make_choice.h"

#include <algorithm>

#include "apps/config/keys/config_error.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/keys/value_named.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/policy_kind.h"

namespace frugal::apps {
namespace {

compress::ActnnOptions actnn_options(const CompressionConfig& config) {
  compress::ActnnOptions options = config.actnn;
  options.keep = config;
  options.average = config.bits;
  options.mixed = has_adaptive_widths(config);
  options.products_only = config.actnn.products_only && config.bits > 0;
  return options;
}

compress::AcgcOptions acgc_options(const CompressionConfig& config) {
  if (config.rounding == compress::Rounding::dithered)
    throw ConfigError("compression.advanced.rounding",
                      "expected stochastic or nearest with policy acgc, got dithered");
  compress::AcgcOptions options = config.acgc;
  options.keep = config;
  // Bounds read the rounding beside `keep`.
  if (const auto rounding = std::exchange(options.keep.rounding, std::nullopt))
    options.rounding = *rounding;
  if (options.rule == compress::acgc::Rule::published) {
    options.rounding = compress::Rounding::nearest;
    options.keep.recipes = false;
  }
  return options;
}

compress::Choice unwrapped(const CompressionConfig& config) {
  if (config.policy == PolicyKind::budget) return compress::budget(config.memory_budget, config);
  if (config.policy == PolicyKind::actnn) return {.policy = actnn_options(config)};
  if (config.policy == PolicyKind::acgc) return {.policy = acgc_options(config)};
  FRUGAL_ASSERT(config.policy == PolicyKind::gact);
  if (!has_adaptive_widths(config)) return compress::bits(config.bits, config);
  compress::AdaptiveOptions options = config.gact;
  options.keep = config;
  options.average = config.bits;
  return {.policy = options};
}

}  // namespace

compress::Choice make_choice(const CompressionConfig& config) {
  if (config.axis != compress::GroupAxis::column &&
      (config.policy == PolicyKind::actnn || config.policy == PolicyKind::acgc))
    throw ConfigError("compression.advanced.group_axis",
                      fmt::format("expected column with policy {}, got {}", name_of(config.policy),
                                  config.axis == compress::GroupAxis::row ? "row" : "nchw"));
  compress::Choice choice = unwrapped(config);
  choice.entropy = config.entropy;
  choice.profile = config.known_widths;
  if (!config.offload.empty()) {
    choice.offload = config.file;
    choice.offload->directory = config.offload;
  }
  choice.measuring = config.measuring;
  choice.measuring.first = std::min(choice.measuring.first, choice.measuring.interval);
  return choice;
}

double assumed_acgc_bits(const CompressionConfig& config) {
  return compress::assumed_bits(acgc_options(config));
}

}  // namespace frugal::apps
