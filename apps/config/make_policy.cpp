#include "apps/config/make_policy.h"

#include "apps/config/config_error.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/levels.h"
#include "compress/policies/offload_policy.h"

namespace frugal::apps {
namespace {

compress::Rounding parse_rounding(const std::string& name) {
  if (name == "nearest") return compress::Rounding::nearest;
  return name == "dithered" ? compress::Rounding::dithered : compress::Rounding::stochastic;
}

// The fixed and the adaptive levels.
std::unique_ptr<SavePolicy> make_gact(const CompressionConfig& config, uint64_t seed) {
  const compress::FixedPolicyOptions keep = keep_options(config, seed);
  const compress::Level& level = compress::level(config.level);
  if (!level.adaptive) return std::make_unique<compress::FixedPolicy>(keep);
  compress::AdaptiveOptions adaptive;
  adaptive.keep = keep;
  adaptive.average = config.average_bits > 0 ? config.average_bits : level.bits;
  return std::make_unique<compress::AdaptivePolicy>(adaptive);
}

std::unique_ptr<SavePolicy> make_actnn(const CompressionConfig& config, uint64_t seed) {
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
  return std::make_unique<compress::ActnnPolicy>(options);
}

std::unique_ptr<SavePolicy> make_acgc(const CompressionConfig& config, uint64_t seed) {
  if (config.rounding == "dithered")
    throw ConfigError("compression.advanced.rounding",
                      "expected stochastic or nearest with policy acgc, got dithered");
  compress::AcgcOptions options;
  options.e = config.acgc_growth;
  options.keep = keep_options(config, seed);
  options.rounding = options.keep.rounding;
  options.codec = config.acgc_codec;
  options.interval = config.acgc_interval;
  if (config.acgc_count == "expected") options.count = compress::acgc::Count::expected;
  if (config.acgc_rule == "published") {
    options.rule = compress::acgc::Rule::published;
    options.rounding = compress::Rounding::nearest;
    options.keep.recipes = false;
  }
  return std::make_unique<compress::AcgcPolicy>(options);
}

std::unique_ptr<SavePolicy> make_budget(const CompressionConfig& config, uint64_t seed) {
  compress::BudgetPolicyOptions options;
  options.keep = keep_options(config, seed);
  return std::make_unique<compress::BudgetPolicy>(options);
}

// `draft`: the policy only sees steps on meta, so its file needs no buffers in memory.
std::unique_ptr<SavePolicy> make(const CompressionConfig& config, uint64_t seed, bool draft) {
  if (config.group_axis == "row" && (config.policy == "actnn" || config.policy == "acgc"))
    throw ConfigError("compression.advanced.group_axis",
                      fmt::format("expected column with policy {}, got row", config.policy));
  std::unique_ptr<SavePolicy> policy = config.policy == "budget"  ? make_budget(config, seed)
                                       : config.policy == "actnn" ? make_actnn(config, seed)
                                       : config.policy == "acgc"  ? make_acgc(config, seed)
                                                                  : make_gact(config, seed);
  if (config.entropy) policy = std::make_unique<compress::EntropyPolicy>(std::move(policy));
  if (config.offload.empty()) return policy;
  compress::OffloadOptions file;
  file.directory = config.offload;
  file.window = config.offload_window;
  file.direct = !draft;
  return std::make_unique<compress::OffloadPolicy>(std::move(policy), file, config.min_elements);
}

}  // namespace

compress::FixedPolicyOptions keep_options(const CompressionConfig& config, uint64_t seed) {
  compress::FixedPolicyOptions options;
  if (config.policy == "gact") options.bits = compress::level(config.level).bits;
  if (config.bits > 0) options.bits = static_cast<int>(config.bits);
  options.recipes = config.recipes;
  options.signs = config.signs == "codes" ? compress::Signs::codes : compress::Signs::masks;
  options.chain = config.chain;
  options.slice_bytes = slice_bytes_of(config);
  options.min_elements = config.min_elements;
  options.group = config.group_size;
  if (config.group_axis == "row") options.axis = compress::GroupAxis::row;
  options.rounding = parse_rounding(rounding_of(config));
  options.seed = seed;
  return options;
}

std::string rounding_of(const CompressionConfig& config) {
  if (config.rounding != "auto") return config.rounding;
  return config.policy == "acgc" ? "stochastic" : "dithered";
}

std::unique_ptr<SavePolicy> make_draft_policy(const CompressionConfig& config, uint64_t seed) {
  return make(config, seed, true);
}

std::unique_ptr<SavePolicy> make_policy(const CompressionConfig& config, uint64_t seed) {
  return make(config, seed, false);
}

}  // namespace frugal::apps
