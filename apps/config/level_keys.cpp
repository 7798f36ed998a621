#include "apps/config/level_keys.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/config/config_error.h"
#include "compress/policies/levels.h"
#include "core/nearest.h"
#include "core/quoted.h"
#include "data/fetch/sources.h"

namespace frugal::apps {
namespace {

constexpr const char* kLevel = "compression.level";
constexpr const char* kPreset = "compression.preset";
constexpr const char* kPolicy = "compression.policy";
constexpr const char* kBudget = "compression.memory_budget";
constexpr const char* kBits = "compression.bits";
constexpr const char* kCheckpointing = "train.checkpointing";
constexpr int64_t kWholeBatch = 1 << 20;  // samples
constexpr const char* kFlags[] = {"compression.gact.adaptive", "compression.actnn.adaptive",
                                  "compression.actnn.products_only", "compression.actnn.by_sample"};

// Errors: a level that the policy does not have.
const compress::Level& traits_of(const std::string& policy, const std::string& name) {
  try {
    return compress::level(
        name, policy == "actnn" ? compress::LevelsOf::actnn : compress::LevelsOf::gact);
  } catch (const Error& error) {
    throw ConfigError(kLevel, error.what());
  }
}

// The value at a path such as "compression.gact.adaptive"; null: there is none.
const Json* value_at(const Json& document, const std::string& path) {
  const Json* node = &document;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (!node->is_object() || !node->contains(part)) return nullptr;
    node = &node->at(part);
  }
  return node;
}

// Leaves a document alone where something else than an object is in the way: parsing says so.
void put(Json& document, const std::string& path, const Json& value) {
  Json* node = &document;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    if (node->is_null()) *node = Json::object();
    if (!node->is_object()) return;
    node = &(*node)[part];
  }
  *node = value;
}

void remove(Json& document, const std::string& path) {
  const size_t dot = path.rfind('.');
  Json* node = &document;
  std::stringstream parts(path.substr(0, dot));
  for (std::string part; std::getline(parts, part, '.');) {
    if (!node->is_object() || !node->contains(part)) return;
    node = &node->at(part);
  }
  if (node->is_object()) node->erase(path.substr(dot + 1));
}

const Preset* preset_named(const std::string& name) {
  const auto found = std::find_if(presets().begin(), presets().end(), [&](const Preset& preset) {
    return data::same_name(preset.name, name);
  });
  return found == presets().end() ? nullptr : &*found;
}

bool is_whole(double bits) { return bits == std::floor(bits); }

void check_bits(const Json& value, const compress::Level& traits, const std::string& level) {
  if (!value.is_number()) return;  // parsing says what is wrong
  const double bits = value.get<double>();
  const char* expected = traits.bits == 0 && bits != 0  ? "0"
                         : traits.bits != 0 && bits < 1 ? "at least 1"
                         : traits.bits != 0 && !traits.adaptive && !is_whole(bits)
                             ? "a whole number"
                             : nullptr;
  if (expected != nullptr)
    throw ConfigError(
        kBits, fmt::format("expected {} with level {}, got {}", expected, level, value.dump()));
}

std::string policy_in(const Json& document) {
  const Json* policy = value_at(document, "compression.policy");
  const bool actnn = policy != nullptr && policy->is_string() &&
                     data::same_name(policy->get<std::string>(), "actnn");
  return actnn ? "actnn" : "gact";
}

}  // namespace

std::vector<std::string> level_names() {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const auto policy : {compress::LevelsOf::gact, compress::LevelsOf::actnn})
    for (const compress::Level& level : compress::levels(policy)) add(level.name);
  return names;
}

std::vector<std::pair<std::string, Json>> keys_of_level(const std::string& policy,
                                                        const std::string& level) {
  const compress::Level& traits = traits_of(policy, level);
  std::vector<std::pair<std::string, Json>> keys = {{kBits, traits.bits}};
  if (policy == "actnn") {
    keys.emplace_back("compression.actnn.adaptive", traits.adaptive);
    keys.emplace_back("compression.actnn.products_only", traits.products_only);
    if (traits.adaptive) keys.emplace_back("compression.actnn.by_sample", traits.by_sample);
  } else {
    keys.emplace_back("compression.gact.adaptive", traits.adaptive);
  }
  if (traits.checkpointing) keys.emplace_back(kCheckpointing, true);
  return keys;
}

void expand_level(Json& document) {
  const Json* given = value_at(document, kLevel);
  if (given == nullptr || !given->is_string()) return;
  const std::string written = given->get<std::string>();
  const std::vector<std::string> names = level_names();
  const auto found = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return data::same_name(name, written);
  });
  if (found == names.end())
    throw ConfigError(kLevel, fmt::format("expected one of {}, or null, got {}",
                                          fmt::join(names, ", "), in_quotes(written)));
  const std::string& level = *found;
  const std::string policy = policy_in(document);
  const compress::Level& traits = traits_of(policy, level);
  for (const auto& [path, value] : keys_of_level(policy, level)) {
    const Json* own = value_at(document, path);
    if (own == nullptr)
      put(document, path, value);
    else if (path == kBits)
      check_bits(*own, traits, level);
    else if (own->is_boolean() && *own != value)
      throw ConfigError(path, fmt::format("expected {} with compression.level {}, got {}",
                                          value.dump(), level, own->dump()));
  }
  const Json* offload = value_at(document, "compression.offload");
  if (traits.offload && (offload == nullptr || *offload == ""))
    throw ConfigError("compression.offload",
                      fmt::format("expected a folder, to which level {} moves activations", level));
  remove(document, kLevel);
}

void remove_keys_of_levels(Json& document, const std::string& level) {
  const Json* given = value_at(document, kPreset);
  const Preset* preset =
      given != nullptr && given->is_string() ? preset_named(given->get<std::string>()) : nullptr;
  if (preset == nullptr || !preset->of_paper) remove(document, kPreset);
  remove(document, kBits);
  for (const char* flag : kFlags) remove(document, flag);
  if (level.starts_with("CB")) remove(document, kCheckpointing);
}

const std::vector<Preset>& presets() {
  const auto packed = [](double bits) {
    return std::vector<std::pair<std::string, Json>>{{kPolicy, "gact"},
                                                     {kBits, bits},
                                                     {"compression.gact.adaptive", true},
                                                     {"compression.recipes", true},
                                                     {"compression.entropy", true}};
  };
  // What the published programs did with every tensor. `axis`: null where it is always a channel's.
  const auto as_published = [](const char* axis) {
    Preset::Keys keys = {{"compression.advanced.signs", "masks"},
                         {"compression.advanced.group_size", 256},
                         {"compression.advanced.rounding", "stochastic"},
                         {"compression.advanced.min_elements", 0},
                         {"compression.advanced.slice_bytes", 0}};
    if (axis != nullptr) keys.emplace_back("compression.advanced.group_axis", axis);
    return keys;
  };
  static const std::vector<Preset> all = {
      {"lossless",
       "no change of results",
       {{kPolicy, "gact"}, {kBits, 0}, {"compression.recipes", true}}},
      {"safe", "no loss of accuracy in our tables", packed(4)},
      {"small", "less memory, with little or no loss of accuracy", packed(3)},
      {"smallest", "the least memory, with a loss of accuracy where data are hard", packed(2)},
      {"gact_paper",
       "GACT as published, to compare with",
       {{kPolicy, "gact"},
        {kBits, 4},
        {"compression.gact.adaptive", true},
        {"compression.recipes", false},
        {"compression.entropy", false}},
       true,
       as_published("nchw"),
       {},
       {{"compression.gact.interval", 1000},
        {"compression.gact.samples", kWholeBatch},
        {"compression.gact.share", 1},
        {"compression.gact.solver", "greedy"}}},
      {"actnn_paper",
       "ActNN as published, to compare with",
       {{kPolicy, "actnn"},
        {kBits, 2},
        {"compression.actnn.adaptive", true},
        {"compression.entropy", false}},
       true,
       as_published(nullptr),
       {{"compression.recipes", false}},
       {{"compression.actnn.interval", 1},
        {"compression.actnn.by_sample", true},
        {"compression.actnn.by_tensor", true},
        {"compression.actnn.use_gradient", false},
        {"compression.actnn.norms", "outside"},
        {"compression.actnn.gradients", "last"}}},
      {"acgc_paper",
       "AC-GC as published, to compare with",
       {{kPolicy, "acgc"},
        {"compression.acgc.rule", "published"},
        {"compression.acgc.growth", 1},
        {"compression.acgc.codec", "fixed_z"},
        {"compression.acgc.interval", 100},
        {"compression.recipes", false},
        {"compression.entropy", false},
        {"compression.advanced.min_elements", 0},
        {"compression.advanced.slice_bytes", 0},
        {"compression.advanced.rounding", "nearest"}},
       true},
  };
  return all;
}

void expand_preset(Json& document) {
  const Json* given = value_at(document, kPreset);
  if (given == nullptr || !given->is_string()) return;
  const std::string written = given->get<std::string>();
  const Preset* const found = preset_named(written);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.emplace_back(preset.name);
    throw ConfigError(kPreset,
                      fmt::format("expected one of {}, or null, got {}; the nearest is '{}'",
                                  fmt::join(names, ", "), in_quotes(written),
                                  nearest_name(printable(written), names)));
  }
  const std::string policy = found->keys.front().second.get<std::string>();
  const bool takes_levels = found->of_paper && policy != "acgc";
  bool has_level = false;
  for (const char* other : {kLevel, kBudget}) {
    const Json* value = value_at(document, other);
    if (value == nullptr || !value->is_string() || *value == "") continue;
    if (other == kLevel && takes_levels) {
      has_level = true;
      continue;
    }
    throw ConfigError(kPreset, fmt::format("expected null with {}, which chooses widths, too; "
                                           "got {}",
                                           other, found->name));
  }
  if (const Json* own = value_at(document, kPolicy); own == nullptr)
    put(document, kPolicy, policy);
  else if (own->is_string() && !data::same_name(own->get<std::string>(), policy))
    throw ConfigError(kPolicy, fmt::format("expected {} with compression.preset {}, got {}", policy,
                                           found->name, own->dump()));
  if (has_level) expand_level(document);
  const auto put_missing = [&](const Preset::Keys& keys) {
    for (const auto& [path, value] : keys) {
      const Json* own = value_at(document, path);
      if (own == nullptr)
        put(document, path, value);
      else if (path == kBits && !has_level && own->is_number() && (*own == 0) != (value == 0))
        throw ConfigError(path,
                          fmt::format("expected {} with compression.preset {}, got {}",
                                      value == 0 ? "0" : "at least 1", found->name, own->dump()));
    }
  };
  put_missing(found->keys);
  const auto is = [&](const char* path, const Json& value) {
    const Json* own = value_at(document, path);
    return own != nullptr && *own == value;
  };
  const Json* bits = value_at(document, kBits);
  const bool is_packed = bits == nullptr || *bits != 0;
  const bool is_adaptive =
      is_packed && (is(fmt::format("compression.{}.adaptive", policy).c_str(), true) ||
                    (bits != nullptr && bits->is_number() && !is_whole(bits->get<double>())));
  if (is_packed) put_missing(found->where_packed);
  if (!is("compression.actnn.products_only", true)) put_missing(found->where_rebuilt);
  if (is_adaptive) put_missing(found->where_adaptive);
  remove(document, kPreset);
}

void remove_keys_of_presets(Json& document) {
  for (const Preset& preset : presets())
    for (const Preset::Keys* keys :
         {&preset.keys, &preset.where_packed, &preset.where_rebuilt, &preset.where_adaptive})
      for (const auto& each : *keys) remove(document, each.first);
  for (const char* flag : kFlags) remove(document, flag);
  for (const char* other : {kLevel, kBudget, kPreset}) remove(document, other);
}

bool has_adaptive_widths(const CompressionConfig& config) {
  if (config.width == 0 || !config.memory_budget.empty()) return false;
  if (config.policy == "actnn") return config.actnn_adaptive || !is_whole(config.width);
  return config.policy == "gact" && (config.gact_adaptive || !is_whole(config.width));
}

void name_level(CompressionConfig& config) {
  const bool adaptive = has_adaptive_widths(config);
  std::vector<std::string> names = {"L0"};
  if (config.width > 0 && config.policy == "actnn")
    names = {adaptive                     ? (config.actnn_by_sample ? "L3" : "L2.5")
             : config.actnn_products_only ? "L1"
                                          : "L2"};
  else if (config.width > 0)
    names = adaptive ? std::vector<std::string>{"L2", "L2.1", "L2.2"}
                     : std::vector<std::string>{"L1", "L1.1", "L1.2"};
  config.level = names[0];
  bool same = false;  // as the level's own bits
  for (const std::string& name : names) {
    if (traits_of(config.policy, name).bits != config.width) continue;
    config.level = name;
    same = true;
  }
  config.bits = same || adaptive ? 0 : static_cast<int64_t>(config.width);
  config.average_bits = adaptive && !same ? config.width : 0;
}

const std::vector<OldKey>& old_keys() {
  static const std::vector<OldKey> all = [] {
    std::vector<OldKey> keys = {
        {"compression.average_bits",
         "compression.bits, of which a fraction means adaptive widths (a whole average takes "
         "compression.gact.adaptive, with policy actnn compression.actnn.adaptive)"},
        {"compression.budget_recompute", "compression.budget.recompute"},
        {"compression.adapt_interval",
         "compression.gact.interval (with policy actnn compression.actnn.interval)"},
        {"compression.adapt_samples",
         "compression.gact.samples (for guard and track_interval "
         "compression.advanced.track_samples)"},
        {"compression.adapt_share", "compression.gact.share"}};
    for (const char* key : {"growth", "rule", "count", "codec", "interval"})
      keys.push_back(
          {fmt::format("compression.acgc_{}", key), fmt::format("compression.acgc.{}", key)});
    for (const char* key :
         {"signs", "chain", "slice_bytes", "min_elements", "group_size", "group_axis", "rounding",
          "offload_window", "guard_min_bits", "track_interval"})
      keys.push_back(
          {fmt::format("compression.{}", key), fmt::format("compression.advanced.{}", key)});
    return keys;
  }();
  return all;
}

}  // namespace frugal::apps
