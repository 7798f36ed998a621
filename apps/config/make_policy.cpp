#include "apps/config/make_policy.h"

#include "apps/config/config_error.h"
#include "apps/config/value_named.h"
#include "compress/policies/levels.h"
#include "compress/policies/width_profile.h"

namespace frugal::apps {
namespace {

std::optional<compress::Rounding> parse_rounding(const CompressionConfig& config) {
  using compress::Rounding;
  if (config.rounding == "auto") return {};
  return value_named<Rounding>(config.rounding, {{"stochastic", Rounding::stochastic},
                                                 {"nearest", Rounding::nearest},
                                                 {"dithered", Rounding::dithered}});
}

// The fixed and the adaptive levels.
compress::PolicyOptions gact_options(const CompressionConfig& config, uint64_t seed) {
  const compress::FixedPolicyOptions keep = keep_options(config, seed);
  const compress::Level& level = compress::level(config.level);
  if (!level.adaptive) return {.policy = keep};
  const double average = config.average_bits > 0 ? config.average_bits : level.bits;
  return {
      .policy = compress::AdaptiveOptions{
          .keep = keep,
          .average = average,
          .greedy = value_named<bool>(config.gact_solver, {{"exact", false}, {"greedy", true}})}};
}

compress::ActnnOptions actnn_options(const CompressionConfig& config, uint64_t seed) {
  compress::ActnnOptions options;
  options.keep = keep_options(config, seed);
  const compress::Level& level = compress::level(config.level, compress::LevelsOf::actnn);
  options.mixed = level.adaptive;
  options.products_only = level.products_only;
  options.average = level.bits;
  if (level.adaptive && config.average_bits > 0) options.average = config.average_bits;
  if (!level.adaptive && level.bits > 0 && config.bits > 0)
    options.average = static_cast<double>(config.bits);
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

compress::AcgcOptions acgc_options(const CompressionConfig& config, uint64_t seed) {
  if (config.rounding == "dithered")
    throw ConfigError("compression.advanced.rounding",
                      "expected stochastic or nearest with policy acgc, got dithered");
  compress::AcgcOptions options;
  options.e = config.acgc_growth;
  options.keep = keep_options(config, seed);
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

compress::PolicyOptions unwrapped(const CompressionConfig& config, uint64_t seed) {
  if (config.policy == "budget")
    return {.policy = compress::BudgetPolicyOptions{.keep = keep_options(config, seed)}};
  if (config.policy == "actnn") return {.policy = actnn_options(config, seed)};
  if (config.policy == "acgc") return {.policy = acgc_options(config, seed)};
  FRUGAL_ASSERT(config.policy == "gact");
  return gact_options(config, seed);
}

}  // namespace

compress::PolicyOptions policy_options(const CompressionConfig& config, uint64_t seed) {
  if (config.group_axis != "column" && (config.policy == "actnn" || config.policy == "acgc"))
    throw ConfigError(
        "compression.advanced.group_axis",
        fmt::format("expected column with policy {}, got {}", config.policy, config.group_axis));
  compress::PolicyOptions options = unwrapped(config, seed);
  options.entropy = config.entropy;
  options.profile = config.known_widths;
  if (!config.offload.empty()) {
    options.offload.emplace();
    options.offload->directory = config.offload;
    options.offload->window = config.offload_window;
  }
  return options;
}

namespace {

// An unresolved configuration (`auto`) gets what the CPU takes. `draft`: the policy only sees steps
// on meta, so its file needs no buffers in memory.
std::unique_ptr<SavePolicy> make(const CompressionConfig& config, uint64_t seed, bool draft) {
  compress::PolicyOptions options = on_device(policy_options(config, seed), kCpu);
  if (options.offload) options.offload->direct = !draft;
  return compress::make_policy(options);
}

}  // namespace

double assumed_acgc_bits(const CompressionConfig& config) {
  return compress::assumed_bits(acgc_options(config, 0));
}

compress::FixedPolicyOptions keep_options(const CompressionConfig& config, uint64_t seed) {
  compress::FixedPolicyOptions options;
  if (config.policy == "gact") options.bits = compress::level(config.level).bits;
  if (config.bits > 0) options.bits = static_cast<int>(config.bits);
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
  options.rounding = parse_rounding(config);
  options.seed = seed;
  return options;
}

std::unique_ptr<SavePolicy> make_draft_policy(const CompressionConfig& config, uint64_t seed) {
  return make(config, seed, true);
}

std::unique_ptr<SavePolicy> make_policy(const CompressionConfig& config, uint64_t seed) {
  return make(config, seed, false);
}

}  // namespace frugal::apps
