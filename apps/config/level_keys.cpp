#include "apps/config/level_keys.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/config/config_error.h"
#include "apps/config/nearest.h"
#include "compress/policies/levels.h"
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
constexpr const char* kFlags[] = {"compression.gact.adaptive", "compression.actnn.adaptive",
                                  "compression.actnn.products_only"};

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
  remove(document, kPreset);
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
  static const std::vector<Preset> all = {
      {"lossless",
       "no change of results",
       {{kPolicy, "gact"}, {kBits, 0}, {"compression.recipes", true}}},
      {"safe", "no loss of accuracy in our tables", packed(4)},
      {"small", "less memory, with little or no loss of accuracy", packed(3)},
      {"smallest", "the least memory, with a loss of accuracy where data are hard", packed(2)},
  };
  return all;
}

void expand_preset(Json& document) {
  const Json* given = value_at(document, kPreset);
  if (given == nullptr || !given->is_string()) return;
  const std::string written = given->get<std::string>();
  const auto found = std::find_if(presets().begin(), presets().end(), [&](const Preset& preset) {
    return data::same_name(preset.name, written);
  });
  if (found == presets().end()) {
    std::vector<std::string> names;
    for (const Preset& preset : presets()) names.emplace_back(preset.name);
    throw ConfigError(kPreset,
                      fmt::format("expected one of {}, or null, got {}; the nearest is '{}'",
                                  fmt::join(names, ", "), in_quotes(written),
                                  nearest_name(printable(written), names)));
  }
  for (const char* other : {kLevel, kBudget}) {
    const Json* value = value_at(document, other);
    if (value != nullptr && value->is_string() && *value != "")
      throw ConfigError(kPreset, fmt::format("expected null with {}, which chooses widths, too; "
                                             "got {}",
                                             other, found->name));
  }
  for (const auto& [path, value] : found->keys) {
    const Json* own = value_at(document, path);
    if (own == nullptr) {
      put(document, path, value);
    } else if (path == kPolicy && own->is_string() &&
               !data::same_name(own->get<std::string>(), "gact")) {
      throw ConfigError(path, fmt::format("expected gact with compression.preset {}, got {}",
                                          found->name, own->dump()));
    } else if (path == kBits && own->is_number() && (*own == 0) != (value == 0)) {
      throw ConfigError(path,
                        fmt::format("expected {} with compression.preset {}, got {}",
                                    value == 0 ? "0" : "at least 1", found->name, own->dump()));
    }
  }
  remove(document, kPreset);
}

void remove_keys_of_presets(Json& document) {
  for (const Preset& preset : presets())
    for (const auto& each : preset.keys) remove(document, each.first);
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
    names = {adaptive ? "L3" : config.actnn_products_only ? "L1" : "L2"};
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
