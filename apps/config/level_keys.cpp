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

using compress::ActnnOptions;
using compress::Choice;
using compress::Named;
using compress::PolicyKind;

// Where a key is set that a name stands for. Nothing reads it elsewhere.
//   packed    bits are not 0
//   rebuilt   recipes could be used
//   adaptive  widths are adaptive
enum class Where : uint8_t { always, packed, rebuilt, adaptive };

// A key of a choice.
struct ChoiceKey {
  const char* path;
  std::vector<PolicyKind> policies;
  Where where;
  bool of_level;  // does a level say it, too?
  Json (*value)(const Choice& choice);
};

const ActnnOptions& actnn(const Choice& choice) { return std::get<ActnnOptions>(choice.policy); }
const compress::AcgcOptions& acgc(const Choice& choice) {
  return std::get<compress::AcgcOptions>(choice.policy);
}
bool is_whole(double bits) { return bits == std::floor(bits); }
Json bits_of(const Choice& choice) {
  const double bits = choice.bits();
  return is_whole(bits) ? Json(static_cast<int>(bits)) : Json(bits);
}
Json rounding_of(const Choice& choice) {
  const auto* bounds = std::get_if<compress::AcgcOptions>(&choice.policy);
  const auto rounding = bounds != nullptr ? bounds->rounding : choice.keep().rounding;
  if (rounding == compress::Rounding::nearest) return "nearest";
  if (!rounding || bounds != nullptr) return "auto";
  return rounding == compress::Rounding::dithered ? "dithered" : "stochastic";
}
Json axis_of(const Choice& choice) {
  const compress::GroupAxis axis = choice.keep().axis;
  return axis == compress::GroupAxis::nchw  ? "nchw"
         : axis == compress::GroupAxis::row ? "row"
                                            : "column";
}
Json slices_of(const Choice& choice) {
  const auto bytes = choice.keep().slice_bytes;
  return bytes ? Json(*bytes) : Json(nullptr);
}

const std::vector<ChoiceKey>& choice_keys() {
  constexpr auto kGact = PolicyKind::gact, kActnn = PolicyKind::actnn, kAcgc = PolicyKind::acgc;
  using C = Choice;
  static const std::vector<ChoiceKey> all = {
      {kBits, {kGact, kActnn}, Where::always, true, bits_of},
      {"compression.gact.adaptive",
       {kGact},
       Where::always,
       true,
       [](const C& c) { return Json(c.is_adaptive()); }},
      {"compression.actnn.adaptive",
       {kActnn},
       Where::always,
       true,
       [](const C& c) { return Json(c.is_adaptive()); }},
      {"compression.actnn.products_only",
       {kActnn},
       Where::always,
       true,
       [](const C& c) { return Json(actnn(c).products_only); }},
      {"compression.actnn.by_sample",
       {kActnn},
       Where::adaptive,
       true,
       [](const C& c) { return Json(actnn(c).by_sample); }},
      {"compression.recipes",
       {kGact, kActnn, kAcgc},
       Where::rebuilt,
       false,
       [](const C& c) { return Json(c.keep().recipes); }},
      {"compression.entropy",
       {kGact, kActnn, kAcgc},
       Where::always,
       false,
       [](const C& c) { return Json(c.entropy); }},
      {"compression.advanced.signs",
       {kGact, kActnn},
       Where::packed,
       false,
       [](const C& c) {
         return Json(c.keep().signs == compress::Signs::codes ? "codes" : "masks");
       }},
      {"compression.advanced.group_size",
       {kGact, kActnn},
       Where::packed,
       false,
       [](const C& c) { return Json(c.keep().group); }},
      {"compression.advanced.group_axis", {kGact}, Where::packed, false, axis_of},
      {"compression.advanced.rounding", {kGact, kActnn, kAcgc}, Where::packed, false, rounding_of},
      {"compression.advanced.min_elements",
       {kGact, kActnn, kAcgc},
       Where::packed,
       false,
       [](const C& c) { return Json(c.keep().min_elements); }},
      {"compression.advanced.slice_bytes", {kGact, kActnn, kAcgc}, Where::packed, false, slices_of},
      {"compression.gact.interval",
       {kGact},
       Where::adaptive,
       false,
       [](const C& c) { return Json(c.measuring.interval); }},
      {"compression.gact.samples",
       {kGact},
       Where::adaptive,
       false,
       [](const C& c) { return Json(c.measuring.samples); }},
      {"compression.gact.share",
       {kGact},
       Where::adaptive,
       false,
       [](const C& c) { return Json(c.measuring.share); }},
      {"compression.gact.solver",
       {kGact},
       Where::adaptive,
       false,
       [](const C& c) {
         const auto* adaptive = std::get_if<compress::AdaptiveOptions>(&c.policy);
         return Json(adaptive != nullptr && adaptive->greedy ? "greedy" : "exact");
       }},
      {"compression.actnn.interval",
       {kActnn},
       Where::adaptive,
       false,
       [](const C& c) { return Json(actnn(c).interval); }},
      {"compression.actnn.by_tensor",
       {kActnn},
       Where::adaptive,
       false,
       [](const C& c) { return Json(actnn(c).by_tensor); }},
      {"compression.actnn.use_gradient",
       {kActnn},
       Where::adaptive,
       false,
       [](const C& c) { return Json(actnn(c).use_gradient); }},
      {"compression.actnn.norms",
       {kActnn},
       Where::adaptive,
       false,
       [](const C& c) { return Json(actnn(c).norms_outside ? "outside" : "inside"); }},
      {"compression.actnn.gradients",
       {kActnn},
       Where::adaptive,
       false,
       [](const C& c) { return Json(actnn(c).momentum == 0 ? "last" : "averaged"); }},
      {"compression.acgc.rule",
       {kAcgc},
       Where::always,
       false,
       [](const C& c) {
         return Json(acgc(c).rule == compress::acgc::Rule::published ? "published" : "derived");
       }},
      {"compression.acgc.growth",
       {kAcgc},
       Where::always,
       false,
       [](const C& c) { return Json(acgc(c).e); }},
      {"compression.acgc.codec",
       {kAcgc},
       Where::always,
       false,
       [](const C& c) { return Json(acgc(c).codec); }},
      {"compression.acgc.interval",
       {kAcgc},
       Where::always,
       false,
       [](const C& c) { return Json(acgc(c).interval); }},
  };
  return all;
}

bool is_of(const ChoiceKey& key, PolicyKind policy) {
  return std::find(key.policies.begin(), key.policies.end(), policy) != key.policies.end();
}

// Errors: a level that the policy does not have.
const Named& level_of(PolicyKind policy, const std::string& name) {
  try {
    return compress::level(name, policy);
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

const Named* preset_named(const std::string& name) {
  for (const Named& preset : compress::presets())
    if (data::same_name(std::string(preset.name), name)) return &preset;
  return nullptr;
}

void check_bits(const Json& value, const Choice& choice, const std::string& level) {
  if (!value.is_number()) return;  // parsing says what is wrong
  const double bits = value.get<double>();
  const char* expected = choice.bits() == 0 && bits != 0  ? "0"
                         : choice.bits() != 0 && bits < 1 ? "at least 1"
                         : choice.bits() != 0 && !choice.is_adaptive() && !is_whole(bits)
                             ? "a whole number"
                             : nullptr;
  if (expected != nullptr)
    throw ConfigError(
        kBits, fmt::format("expected {} with level {}, got {}", expected, level, value.dump()));
}

// The policy that a document names, if it has levels, and else gact.
PolicyKind policy_in(const Json& document) {
  const Json* policy = value_at(document, kPolicy);
  const bool is_actnn =
      policy != nullptr && policy->is_string() &&
      data::same_name(policy->get<std::string>(), std::string(name_of(PolicyKind::actnn)));
  return is_actnn ? PolicyKind::actnn : PolicyKind::gact;
}

}  // namespace

std::vector<std::string> level_names() {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const Named& each : compress::named_choices())
    if (each.of == Named::level) add(each.name);
  return names;
}

std::vector<std::pair<std::string, Json>> keys_of_level(PolicyKind policy,
                                                        const std::string& level) {
  const PolicyKind kind = policy == PolicyKind::actnn ? policy : PolicyKind::gact;
  const Named& named = level_of(kind, level);
  std::vector<std::pair<std::string, Json>> keys;
  for (const ChoiceKey& key : choice_keys())
    if (key.of_level && is_of(key, kind) &&
        (key.where != Where::adaptive || named.choice.is_adaptive()))
      keys.emplace_back(key.path, key.value(named.choice));
  if (named.checkpointing) keys.emplace_back(kCheckpointing, true);
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
  const PolicyKind policy = policy_in(document);
  const Named& named = level_of(policy, level);
  for (const auto& [path, value] : keys_of_level(policy, level)) {
    const Json* own = value_at(document, path);
    if (own == nullptr)
      put(document, path, value);
    else if (path == kBits)
      check_bits(*own, named.choice, level);
    else if (own->is_boolean() && *own != value)
      throw ConfigError(path, fmt::format("expected {} with compression.level {}, got {}",
                                          value.dump(), level, own->dump()));
  }
  const Json* offload = value_at(document, "compression.offload");
  if (named.offload && (offload == nullptr || *offload == ""))
    throw ConfigError("compression.offload",
                      fmt::format("expected a folder, to which level {} moves activations", level));
  remove(document, kLevel);
}

void remove_keys_of_levels(Json& document, const std::string& level) {
  const Json* given = value_at(document, kPreset);
  const Named* preset =
      given != nullptr && given->is_string() ? preset_named(given->get<std::string>()) : nullptr;
  if (preset == nullptr || preset->of != Named::paper_preset) remove(document, kPreset);
  for (const ChoiceKey& key : choice_keys())
    if (key.of_level) remove(document, key.path);
  if (level.starts_with("CB")) remove(document, kCheckpointing);
}

void expand_preset(Json& document) {
  const Json* given = value_at(document, kPreset);
  if (given == nullptr || !given->is_string()) return;
  const std::string written = given->get<std::string>();
  const Named* const found = preset_named(written);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const Named& preset : compress::presets()) names.emplace_back(preset.name);
    throw ConfigError(kPreset,
                      fmt::format("expected one of {}, or null, got {}; the nearest is '{}'",
                                  fmt::join(names, ", "), in_quotes(written),
                                  nearest_name(printable(written), names)));
  }
  const std::string policy(name_of(found->policy));
  const bool takes_levels =
      found->of == Named::paper_preset && !compress::levels(found->policy).empty();
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
  const auto put_missing = [&](Where where) {
    for (const ChoiceKey& key : choice_keys()) {
      if (key.where != where || !is_of(key, found->policy)) continue;
      const Json value = key.value(found->choice);
      const Json* own = value_at(document, key.path);
      if (own == nullptr)
        put(document, key.path, value);
      else if (key.path == kBits && !has_level && own->is_number() && (*own == 0) != (value == 0))
        throw ConfigError(kBits,
                          fmt::format("expected {} with compression.preset {}, got {}",
                                      value == 0 ? "0" : "at least 1", found->name, own->dump()));
    }
  };
  put_missing(Where::always);
  const auto is = [&](const std::string& path, const Json& value) {
    const Json* own = value_at(document, path);
    return own != nullptr && *own == value;
  };
  const bool has_bits = found->policy != PolicyKind::acgc;
  const Json* bits = has_bits ? value_at(document, kBits) : nullptr;
  const bool is_packed = bits == nullptr || *bits != 0;
  const bool is_adaptive =
      has_bits && is_packed &&
      (is(fmt::format("compression.{}.adaptive", policy), true) ||
       (bits != nullptr && bits->is_number() && !is_whole(bits->get<double>())));
  if (is_packed) put_missing(Where::packed);
  if (found->policy != PolicyKind::actnn || !is("compression.actnn.products_only", true))
    put_missing(Where::rebuilt);
  if (is_adaptive) put_missing(Where::adaptive);
  remove(document, kPreset);
}

void remove_keys_of_presets(Json& document) {
  for (const ChoiceKey& key : choice_keys()) remove(document, key.path);
  for (const char* other : {kPolicy, kLevel, kBudget, kPreset}) remove(document, other);
}

bool has_adaptive_widths(const CompressionConfig& config) {
  if (config.bits == 0 || !config.memory_budget.empty()) return false;
  if (config.policy == PolicyKind::actnn) return config.actnn_adaptive || !is_whole(config.bits);
  return config.policy == PolicyKind::gact && (config.gact_adaptive || !is_whole(config.bits));
}

namespace {

const Named& level_like(const CompressionConfig& config) {
  const bool adaptive = has_adaptive_widths(config);
  const PolicyKind policy =
      config.policy == PolicyKind::actnn ? PolicyKind::actnn : PolicyKind::gact;
  const auto is_alike = [&](const Named& level) {
    if (!level.same_as.empty() || level.offload || level.checkpointing) return false;
    if (config.bits == 0 || level.choice.bits() == 0) return config.bits == level.choice.bits();
    if (level.choice.is_adaptive() != adaptive) return false;
    if (policy != PolicyKind::actnn) return true;
    return adaptive ? actnn(level.choice).by_sample == config.actnn_by_sample
                    : actnn(level.choice).products_only == config.actnn_products_only;
  };
  const Named* first = nullptr;
  for (const Named& level : compress::levels(policy)) {
    if (!is_alike(level)) continue;
    if (level.choice.bits() == config.bits) return level;
    if (first == nullptr) first = &level;
  }
  FRUGAL_ASSERT(first != nullptr);
  return *first;
}

}  // namespace

std::string level_name(const CompressionConfig& config) {
  return std::string(level_like(config).name);
}

std::string level_text(const CompressionConfig& config) {
  const Named& level = level_like(config);
  if (level.choice.bits() == config.bits) return std::string(level.name);
  return fmt::format("{} at {} bits", level.name, config.bits);
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
