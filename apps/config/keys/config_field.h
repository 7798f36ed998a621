// How rows of the table of keys are made: of a member of a configuration, and of an option that its
// owner lists (core/option.h).
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/value_schema.h"
#include "compress/policies/policy_kind.h"

namespace frugal::apps {

// ---- values to and from JSON
template <class T>
struct Convert {
  static Json out(const T& value) { return value; }
  static void in(T& value, const Json& json) { value = json.get<T>(); }
};
template <class T>
struct Convert<std::optional<T>> {
  static Json out(const std::optional<T>& value) { return value ? Json(*value) : Json(nullptr); }
  static void in(std::optional<T>& value, const Json& json) {
    value = json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
  }
};

template <>
struct Convert<PolicyKind> {
  static Json out(PolicyKind kind) { return name_of(kind); }
  static void in(PolicyKind& kind, const Json& json) {
    kind = compress::policy_kind(json.get<std::string>()).value();
  }
};

template <class S, class T>
Field field(S Config::*section, const char* key, T S::*member, Json schema, const char* doc,
            Reader reader) {
  Field f;
  f.reader = std::move(reader);
  f.key = key;
  f.schema = std::move(schema);
  f.doc = doc;
  f.get = [=](const Config& c) { return Convert<T>::out(c.*section.*member); };
  f.set = [=](Config& c, const Json& json) { Convert<T>::in(c.*section.*member, json); };
  return f;
}

inline Field without_effect(Field f) {
  f.affects_results = false;
  return f;
}

inline Field a_path(Field f) {
  f.is_path = true;
  return f;
}

// ---- what values may be
using schema::boolean;
using schema::integer;
using schema::number;
using schema::positive;
using schema::text;
inline Json choice(const std::vector<std::string>& names) {
  return {{"type", "string"}, {"enum", names}};
}
inline Json below(double lo, double hi) {
  return {{"type", "number"}, {"minimum", lo}, {"exclusiveMaximum", hi}};
}
inline Json list(Json items, int64_t lo, int64_t hi) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", lo}, {"maxItems", hi}};
}
inline Json or_null(Json schema) {
  schema["type"] = Json::array({schema["type"], "null"});
  return schema;
}

// ---- options whose owners list them (core/option.h)
inline std::string path_in(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}
// "@name" is the path of the option.
inline std::string with_section(std::string text, const std::string& section) {
  for (size_t at = 0; (at = text.find('@', at)) != std::string::npos;)
    text.replace(at, 1, path_in(section, ""));
  return text;
}

// `of` gives the struct S of a configuration.
template <class S, class Of>
Field field_of(const std::string& section, const char* owner, const by_name::Option<S>& option,
               const Of& of) {
  Field f;
  f.key = option.key.name;
  f.option = owner + ("." + f.key);
  f.schema = schema_of(option.key.range);
  f.doc = option.key.help;
  f.affects_results = option.key.affects_results;
  f.get = [=](const Config& c) { return json_of(option.get(of(c))); };
  f.set = [=, path = path_in(section, f.key)](Config& c, const Json& json) {
    option.set(of(c), value_of(option.key.range, json, path));
  };
  f.reader = every_run();
  if (!option.read.when) return f;
  f.reader.who = with_section(option.read.who, section);
  for (const std::string& name : option.read.by) f.reader.by.push_back(path_in(section, name));
  f.reader.reads = [=](const Config& c) { return option.read.when(of(c)); };
  return f;
}

inline bool is_among(std::string_view key, const std::vector<std::string_view>& names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

// Adds the options of `list` whose names are among `names`; no names: all of them.
template <class S, class Of>
void add(Section& section, const char* owner, const std::vector<by_name::Option<S>>& list,
         const Of& of, const std::vector<std::string_view>& names = {}) {
  for (const by_name::Option<S>& each : list)
    if (names.empty() || is_among(each.key.name, names))
      section.fields.push_back(field_of(section.name, owner, each, of));
}

template <class S, class Of>
Section section_of(const char* name, const char* doc, const char* owner,
                   const std::vector<by_name::Option<S>>& list, const Of& of) {
  Section section{name, doc, {}};
  add(section, owner, list, of);
  return section;
}

inline Field& field_named(Section& section, std::string_view key) {
  const auto found = std::find_if(section.fields.begin(), section.fields.end(),
                                  [&](const Field& field) { return field.key == key; });
  FRUGAL_ASSERT(found != section.fields.end());
  return *found;
}

// The order of keys in run folders and in configs/schema.json. Hashes of configurations depend on
// it. A key that is not in `order` comes behind those that are.
inline Section in_order(Section section, const std::string& order) {
  const std::string names = " " + order + " ";
  const auto place = [&](const Field& field) { return names.find(" " + field.key + " "); };
  std::stable_sort(section.fields.begin(), section.fields.end(),
                   [&](const Field& a, const Field& b) { return place(a) < place(b); });
  return section;
}

}  // namespace frugal::apps
