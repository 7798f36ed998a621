// The keys of adapter_config.json, as PEFT and MLX write them, and which modules PEFT's keys mean.
// Internal to adapter_files.cpp.
#pragma once
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/config.h"
#include "core/words/quoted.h"
#include "models/adapters/adapters.h"

namespace frugal::apps::adapter_file {

// Errors: a ConfigError at model.adapter that names the file.
[[noreturn]] inline void fail(const std::string& file, const std::string& what) {
  throw ConfigError("model.adapter", fmt::format("{}: {}", in_quotes(file), what));
}

// The members of an object in a file, each of which somebody asks for. `inside` stands before the
// names of members in errors. Errors of its functions: a ConfigError that names file and member.
class Keys {
 public:
  Keys(const Json& json, std::string file, std::string inside = "")
      : json_(json), file_(std::move(file)), inside_(std::move(inside)) {}
  const Json* find(const char* key) {
    asked_.insert(key);
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  // `advice` says what to do.
  [[noreturn]] void wrong(const char* key, const std::string& expected,
                          const char* advice = "") const {
    fail(file_,
         fmt::format("{}{}: expected {}, got {}{}", inside_, key, expected,
                     json_.contains(key) ? printable(json_[key].dump(), 60) : "none", advice));
  }
  double number(const char* key, std::optional<double> usual = {}) {
    const Json* value = find(key);
    if (value == nullptr && usual) return *usual;
    if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>()))
      wrong(key, "a number");
    return value->get<double>();
  }
  bool flag(const char* key) {
    const Json* value = find(key);
    if (value != nullptr && !value->is_boolean()) wrong(key, "true or false");
    return value != nullptr && value->get<bool>();
  }
  std::string text(const char* key, const char* usual) {
    const Json* value = find(key);
    if (value != nullptr && !value->is_string()) wrong(key, "a text");
    return value == nullptr ? usual : value->get<std::string>();
  }
  void ignore(std::initializer_list<const char*> keys) {
    for (const char* key : keys) asked_.insert(key);
  }
  // Errors: an entry that nobody asked for, and that is not null, false or empty.
  void finish() const {
    for (const auto& [key, value] : json_.items()) {
      const bool says_nothing = value.is_null() || value == Json(false) ||
                                ((value.is_object() || value.is_array()) && value.empty());
      if (!says_nothing && !asked_.contains(key))
        fail(file_,
             fmt::format("{}{}: expected no such key: what it changes is not known here; got "
                         "{}",
                         inside_, printable(key), printable(value.dump(), 60)));
    }
  }

 private:
  const Json& json_;
  std::string file_, inside_;
  std::set<std::string> asked_;
};

// The texts of a member: one or a list.
inline std::vector<std::string> texts(Keys& all, const char* key) {
  std::vector<std::string> entries;
  const Json* given = all.find(key);
  if (given == nullptr) return entries;
  const Json list = given->is_array() ? *given : Json::array({*given});
  for (const Json& entry : list) {
    if (!entry.is_string()) all.wrong(key, "a text or a list of texts");
    entries.push_back(entry.get<std::string>());
  }
  return entries;
}

inline bool is_text(Keys& all, const char* key) {
  const Json* given = all.find(key);
  return given != nullptr && given->is_string();
}

// Is the module `name`, or one inside of it, wherever that is?
inline bool is_inside(const std::string& module, const std::string& name) {
  return ("." + module + ".").find("." + name + ".") != std::string::npos;
}

// The modules to which PEFT gives an adapter, by the keys of a configuration. fan_in_fan_out does
// not count: PEFT sets it as each layer needs it.
class PeftModules {
 public:
  // Errors: keys that PEFT does not take.
  explicit PeftModules(Keys& all)
      : excluded_(texts(all, "exclude_modules")),
        trained_(texts(all, "modules_to_save")),
        targets_(texts(all, "target_modules")),
        patterns_(texts(all, "layers_pattern")),
        excludes_pattern_(is_text(all, "exclude_modules")),
        targets_pattern_(is_text(all, "target_modules")) {
    constexpr const char* kLayersKey = "layers_to_transform";
    if (const Json* layers = all.find(kLayersKey); layers != nullptr)
      for (const Json& layer : layers->is_array() ? *layers : Json::array({*layers})) {
        if (!layer.is_number_integer()) all.wrong(kLayersKey, "the number of a layer or a list");
        layers_.insert(layer.get<int64_t>());
      }
    for (const char* key : {kLayersKey, "layers_pattern"})
      if (targets_pattern_ && has(all, key))
        all.wrong(key, "none beside target_modules that is a text");
    if (!patterns_.empty() && layers_.empty())
      all.wrong("layers_pattern", "layers_to_transform beside it");
    try {
      if (excludes_pattern_) models::is_fitted_by("exclude_modules", excluded_[0], "");
      if (targets_pattern_) models::is_fitted_by("target_modules", targets_[0], "");
      for (const std::string& each : patterns_) models::is_fitted_by("layers_pattern", each, "");
    } catch (const OptionError& e) {
      all.wrong(e.path().c_str(), "a regular expression");
    }
  }

  // Do other keys than target_modules decide, too?
  bool has_more_than_targets() const {
    return !excluded_.empty() || !trained_.empty() || !layers_.empty();
  }
  bool names_targets() const { return !targets_.empty(); }
  bool names_layers() const { return !layers_.empty(); }
  // Does target_modules name every linear layer but the output head?
  bool is_all_linear() const { return targets_pattern_ && targets_[0] == "all-linear"; }

  // The key by which the module has no adapter; null: it has one.
  const char* left_out_by(const std::string& module) const {
    if (excludes_pattern_ ? models::is_fitted_by("exclude_modules", excluded_[0], module)
                          : is_named_by_one(excluded_, module))
      return "exclude_modules";
    for (const std::string& name : trained_)
      if (is_inside(module, name)) return "modules_to_save";
    if (targets_.empty() || is_all_linear()) return nullptr;
    if (targets_pattern_)
      return models::is_fitted_by("target_modules", targets_[0], module) ? nullptr
                                                                         : "target_modules";
    if (!is_named_by_one(targets_, module)) return "target_modules";
    const bool whole = std::find(targets_.begin(), targets_.end(), module) != targets_.end();
    if (whole || layers_.empty()) return nullptr;
    return layers_.contains(layer_of(module)) ? nullptr : "layers_to_transform";
  }

 private:
  static bool has(Keys& all, const char* key) {
    const Json* given = all.find(key);
    return given != nullptr && !(given->is_array() && given->empty());
  }
  static bool is_named_by_one(const std::vector<std::string>& names, const std::string& module) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return models::is_named_by(name, module); });
  }
  // The number of the layer in which the module is, by layers_pattern: names of what holds layers;
  // empty: all are taken that are inside something. -1: it is in none.
  int64_t layer_of(const std::string& module) const {
    std::vector<std::string> parts;
    for (size_t begin = 0, dot = 0; dot != std::string::npos; begin = dot + 1) {
      dot = module.find('.', begin);
      parts.push_back(module.substr(begin, dot - begin));
    }
    const auto number = [&](size_t at) {
      const std::string& part = parts[at];
      const bool digits = !part.empty() && part.size() < 10 &&
                          part.find_first_not_of("0123456789") == std::string::npos;
      return digits ? std::stoll(part) : -1;
    };
    const size_t patterns = std::max<size_t>(patterns_.size(), 1);
    for (size_t i = 0; i < patterns; ++i)
      for (size_t at = 2; at + 1 < parts.size(); ++at)
        if (number(at) >= 0 &&
            (patterns_.empty() ||
             models::is_fitted_by("layers_pattern", patterns_[i], parts[at - 1])))
          return number(at);
    return -1;
  }

  std::vector<std::string> excluded_, trained_, targets_, patterns_;
  bool excludes_pattern_, targets_pattern_;
  std::set<int64_t> layers_;  // empty: all
};

}  // namespace frugal::apps::adapter_file
