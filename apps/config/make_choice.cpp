#include "apps/config/make_choice.h"

#include <algorithm>

#include "apps/config/config_error.h"
#include "apps/config/level_keys.h"
#include "apps/config/value_named.h"
#include "compress/policies/acgc_policy.h"

namespace frugal::apps {
namespace {

std::optional<compress::Rounding> rounding_of(const CompressionConfig& config) {
  using compress::Rounding;
  if (config.rounding == "auto") return {};
  return value_named<Rounding>(config.rounding, {{"stochastic", Rounding::stochastic},
                                                 {"nearest", Rounding::nearest},
                                                 {"dithered", Rounding::dithered}});
}

// What all policies share.
compress::FixedPolicyOptions keep_options(const CompressionConfig& config) {
  compress::FixedPolicyOptions options;
  options.recipes = config.recipes;
  options.signs = value_named<compress::Signs>(
      config.signs, {{"codes", compress::Signs::codes}, {"masks", compress::Signs::masks}});
  options.chain = config.chain;
  options.slice_bytes = config.slice_bytes;
  options.min_elements = config.min_elements;
  options.group = config.group_size;
  using compress::GroupAxis;
  options.axis = value_named<GroupAxis>(
      config.group_axis,
      {{"column", GroupAxis::column}, {"row", GroupAxis::row}, {"nchw", GroupAxis::nchw}});
  options.rounding = rounding_of(config);
  return options;
}

compress::ActnnOptions actnn_options(const CompressionConfig& config) {
  compress::ActnnOptions options;
  options.keep = keep_options(config);
  options.average = config.bits;
  options.mixed = has_adaptive_widths(config);
  options.products_only = config.actnn_products_only && config.bits > 0;
  options.interval = config.actnn_interval;
  options.by_sample = config.actnn_by_sample;
  options.by_tensor = config.actnn_by_tensor;
  options.use_gradient = config.actnn_use_gradient;
  options.norms_outside =
      value_named<bool>(config.actnn_norms, {{"inside", false}, {"outside", true}});
  options.momentum =
      value_named<double>(config.actnn_gradients, {{"averaged", options.momentum}, {"last", 0.0}});
  return options;
}

compress::AcgcOptions acgc_options(const CompressionConfig& config) {
  if (config.rounding == "dithered")
    throw ConfigError("compression.advanced.rounding",
                      "expected stochastic or nearest with policy acgc, got dithered");
  compress::AcgcOptions options;
  options.e = config.acgc_growth;
  options.keep = keep_options(config);
  // Bounds read the rounding beside `keep`.
  if (const auto rounding = std::exchange(options.keep.rounding, std::nullopt))
    options.rounding = *rounding;
  options.codec = config.acgc_codec;
  options.interval = config.acgc_interval;
  using compress::acgc::Count, compress::acgc::Rule;
  options.count = value_named<Count>(config.acgc_count,
                                     {{"worst", Count::worst}, {"expected", Count::expected}});
  options.rule = value_named<Rule>(config.acgc_rule,
                                   {{"derived", Rule::derived}, {"published", Rule::published}});
  if (options.rule == Rule::published) {
    options.rounding = compress::Rounding::nearest;
    options.keep.recipes = false;
  }
  return options;
}

compress::Choice unwrapped(const CompressionConfig& config) {
  if (config.policy == PolicyKind::budget)
    return compress::budget(config.memory_budget, keep_options(config));
  if (config.policy == PolicyKind::actnn) return {.policy = actnn_options(config)};
  if (config.policy == PolicyKind::acgc) return {.policy = acgc_options(config)};
  FRUGAL_ASSERT(config.policy == PolicyKind::gact);
  if (has_adaptive_widths(config))
    return {
        .policy = compress::AdaptiveOptions{
            .keep = keep_options(config),
            .average = config.bits,
            .greedy = value_named<bool>(config.gact_solver, {{"exact", false}, {"greedy", true}})}};
  return compress::bits(config.bits, keep_options(config));
}

}  // namespace

compress::Choice make_choice(const CompressionConfig& config) {
  if (config.group_axis != "column" &&
      (config.policy == PolicyKind::actnn || config.policy == PolicyKind::acgc))
    throw ConfigError("compression.advanced.group_axis",
                      fmt::format("expected column with policy {}, got {}", name_of(config.policy),
                                  config.group_axis));
  compress::Choice choice = unwrapped(config);
  choice.entropy = config.entropy;
  choice.profile = config.known_widths;
  if (!config.offload.empty())
    choice.offload =
        compress::OffloadOptions{.directory = config.offload, .window = config.offload_window};
  choice.measuring.interval = config.adapt_interval;
  choice.measuring.first = std::min(choice.measuring.first, config.adapt_interval);
  choice.measuring.samples = config.adapt_samples;
  choice.measuring.share = config.adapt_share;
  return choice;
}

double assumed_acgc_bits(const CompressionConfig& config) {
  return compress::assumed_bits(acgc_options(config));
}

}  // namespace frugal::apps
