#include "apps/config/keys/level_keys.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/config/keys/config_error.h"
#include "apps/config/keys/config_field.h"
#include "compress/policies/levels.h"
#include "compress/policies/policy_kind.h"
#include "core/words/nearest.h"
#include "core/words/quoted.h"
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
//   recomputed  bits are not 0, and blocks are recomputed
enum class Where : uint8_t { always, packed, rebuilt, adaptive, recomputed };

// A key of a choice.
struct ChoiceKey {
  const char* path;
  std::vector<PolicyKind> policies;
  Where where;
  bool of_level;  // does a level say it, too?

  Json value(const Choice& choice) const;
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
template <class S>
Json value_in(const S& options, const std::string& name) {
  for (const by_name::Option<S>& each : S::list())
    if (name == each.key.name) return json_of(each.get(options));
  FRUGAL_ASSERT(false);
  return nullptr;
}

Json ChoiceKey::value(const Choice& choice) const {
  const std::string_view all = path;
  const std::string name(all.substr(all.rfind('.') + 1));
  if (all == kBits) return bits_of(choice);
  if (name == "adaptive") return choice.is_adaptive();
  if (name == "entropy") return choice.entropy;
  if (name == "rounding") return rounding_of(choice);
  if (name == "solver") {
    const auto* adaptive = std::get_if<compress::AdaptiveOptions>(&choice.policy);
    return value_in(adaptive != nullptr ? *adaptive : compress::AdaptiveOptions(), name);
  }
  if (all.starts_with("compression.gact.")) return value_in(choice.measuring, name);
  if (all.starts_with("compression.actnn.")) return value_in(actnn(choice), name);
  if (all.starts_with("compression.acgc.")) return value_in(acgc(choice), name);
  return value_in(choice.keep(), name);
}

const std::vector<ChoiceKey>& choice_keys() {
  using P = PolicyKind;
  const std::vector<P> gact = {P::gact}, actnn = {P::actnn}, acgc = {P::acgc},
                       widths = {P::gact, P::actnn}, any = {P::gact, P::actnn, P::acgc};
  static const std::vector<ChoiceKey> all = {
      {kBits, widths, Where::always, true},
      {"compression.gact.adaptive", gact, Where::always, true},
      {"compression.actnn.adaptive", actnn, Where::always, true},
      {"compression.actnn.products_only", actnn, Where::always, true},
      {"compression.actnn.by_sample", actnn, Where::adaptive, true},
      {"compression.recipes", any, Where::rebuilt, false},
      {"compression.entropy", any, Where::always, false},
      {"compression.advanced.signs", widths, Where::packed, false},
      {"compression.advanced.group_size", widths, Where::packed, false},
      {"compression.advanced.group_axis", gact, Where::packed, false},
      {"compression.advanced.recomputed", gact, Where::recomputed, false},
      {"compression.advanced.rounding", any, Where::packed, false},
      {"compression.advanced.min_elements", any, Where::packed, false},
      {"compression.advanced.slice_bytes", any, Where::packed, false},
      {"compression.gact.interval", gact, Where::adaptive, false},
      {"compression.gact.samples", gact, Where::adaptive, false},
      {"compression.gact.share", gact, Where::adaptive, false},
      {"compression.gact.solver", gact, Where::adaptive, false},
      {"compression.actnn.interval", actnn, Where::adaptive, false},
      {"compression.actnn.by_tensor", actnn, Where::adaptive, false},
      {"compression.actnn.use_gradient", actnn, Where::adaptive, false},
      {"compression.actnn.norms", actnn, Where::adaptive, false},
      {"compression.actnn.gradients", actnn, Where::adaptive, false},
      {"compression.acgc.rule", acgc, Where::always, false},
      {"compression.acgc.growth", acgc, Where::always, false},
      {"compression.acgc.codec", acgc, Where::always, false},
      {"compression.acgc.interval", acgc, Where::always, false},
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

// The policy that a document names; gact if it names none, or none that there is.
PolicyKind policy_in(const Json& document) {
  const Json* policy = value_at(document, kPolicy);
  if (policy != nullptr && policy->is_string())
    for (const PolicyKind kind : {PolicyKind::actnn, PolicyKind::acgc})
      if (data::same_name(policy->get<std::string>(), std::string(name_of(kind)))) return kind;
  return PolicyKind::gact;
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

Field level_field() {
  // The configuration holds what a level sets (expand_level()), not its name.
  Field level;
  level.key = "level";
  level.schema = or_null(choice(level_names()));
  level.doc =
      "A paper's name for other keys, which are set in its place; null: none. GACT's: L0: bits 0; "
      "L1, L1.1, L1.2: bits 4, 8, 2; L2, L2.1, L2.2: bits 4, 3, 2 with gact.adaptive; L3: L2 with "
      "offload; CB1: L1 with train.checkpointing; CB2 equals CB1 here. With policy actnn: L0: bits "
      "0; L1: bits 4 with actnn.products_only; L2: bits 4; L2.5: bits 2 with actnn.adaptive, "
      "without "
      "actnn.by_sample; L3: bits 2 with actnn.adaptive; L4: L3 with offload; L5 equals L4 here. "
      "bits beside it replaces its width.";
  level.get = [](const Config&) { return Json(nullptr); };
  level.set = [](Config&, const Json&) {};
  level.reader = every_run();
  return level;
}

Field preset_field() {
  std::vector<std::string> names;
  Field preset = level_field();
  preset.key = "preset";
  preset.doc =
      "A set of the other keys, chosen by measured accuracy and memory, or a paper's method; null: "
      "none.";
  for (const compress::Named& each : compress::presets()) {
    names.emplace_back(each.name);
    preset.doc += fmt::format(" {}: {}.", each.name, each.summary);
  }
  preset.doc += " Keys beside it stay as they are given.";
  preset.schema = or_null(choice(names));
  return preset;
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
  if (compress::levels(policy).empty())
    throw ConfigError(kLevel, fmt::format("expected null with compression.policy {}, which has no "
                                          "levels, got {}",
                                          name_of(policy), level));
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
  if (is_packed && is(kCheckpointing, true)) put_missing(Where::recomputed);
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
  if (config.policy == PolicyKind::actnn) return config.actnn.mixed || !is_whole(config.bits);
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
    return adaptive ? actnn(level.choice).by_sample == config.actnn.by_sample
                    : actnn(level.choice).products_only == config.actnn.products_only;
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
