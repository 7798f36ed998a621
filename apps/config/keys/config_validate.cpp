#include <cmath>
#include <map>
#include <regex>

#include "apps/config/keys/config_readers.h"
#include "apps/config/keys/config_table.h"
#include "core/words/nearest.h"
#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

constexpr size_t kLongestMatched = 64;

bool is_integral(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= INT64_MAX;
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double d = value.get<double>();
  return std::trunc(d) == d && std::abs(d) <= 9007199254740992.0;  // 2^53: exact in a double
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return is_integral(value);
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return value.is_null();
}

std::vector<std::string> types_of(const Json& schema) {
  if (schema.at("type").is_array()) return schema.at("type").get<std::vector<std::string>>();
  return {schema.at("type").get<std::string>()};
}

bool fits(const Json& schema, const Json& value) {
  bool typed = false;
  for (const std::string& type : types_of(schema)) typed = typed || has_type(value, type);
  if (!typed) return false;
  if (schema.contains("enum") && value.is_string()) {
    bool listed = false;
    for (const Json& each : schema["enum"]) listed = listed || each == value;
    if (!listed) return false;
  }
  if (value.is_number_integer()) {  // compared as integers: a double has only 53 bits
    if (schema.contains("minimum") && value < schema["minimum"]) return false;
    if (schema.contains("maximum") && value > schema["maximum"]) return false;
    if (schema.contains("multipleOf") &&
        value.get<int64_t>() % schema["multipleOf"].get<int64_t>() != 0)
      return false;
  }
  if (value.is_number()) {
    const double d = value.get<double>();
    auto bound = [&](const char* key) { return schema[key].get<double>(); };
    if (!std::isfinite(d)) return false;
    if (schema.contains("minimum") && d < bound("minimum")) return false;
    if (schema.contains("maximum") && d > bound("maximum")) return false;
    if (schema.contains("exclusiveMinimum") && d <= bound("exclusiveMinimum")) return false;
    if (schema.contains("exclusiveMaximum") && d >= bound("exclusiveMaximum")) return false;
  }
  if (value.is_string() && schema.contains("pattern")) {
    const auto& text = value.get_ref<const std::string&>();
    // std::regex recurses for each character, so a long text would overflow the stack.
    return text.size() <= kLongestMatched &&
           std::regex_match(text, std::regex(schema["pattern"].get<std::string>()));
  }
  if (value.is_array()) {
    const auto n = static_cast<int64_t>(value.size());
    if (schema.contains("minItems") && n < schema["minItems"].get<int64_t>()) return false;
    if (schema.contains("maxItems") && n > schema["maxItems"].get<int64_t>()) return false;
  }
  return true;
}

std::string shown(const Json& value) {
  return printable(value.dump(-1, ' ', false, Json::error_handler_t::replace), 80);
}

std::string range_of(const Json& schema) {
  const bool open_lo = schema.contains("exclusiveMinimum");
  const bool open_hi = schema.contains("exclusiveMaximum");
  const char* lo = open_lo ? "exclusiveMinimum" : "minimum";
  const char* hi = open_hi ? "exclusiveMaximum" : "maximum";
  if (!schema.contains(lo)) return "";
  if (!schema.contains(hi)) return fmt::format(" {} {}", open_lo ? ">" : ">=", schema[lo].dump());
  return fmt::format(" in {}{}, {}{}", open_lo ? "(" : "[", schema[lo].dump(), schema[hi].dump(),
                     open_hi ? ")" : "]");
}

// " such as cpu, cuda"
std::string such_as(const Json& schema) {
  if (!schema.contains("examples")) return "";
  std::string text;
  for (const Json& each : schema["examples"])
    text += (text.empty() ? " such as " : ", ") + each.get<std::string>();
  return text;
}

}  // namespace

std::string describe_schema(const Json& schema) {
  if (schema.contains("enum")) {
    std::string text;
    for (const Json& each : schema["enum"])
      text += (text.empty() ? "one of " : ", ") + each.get<std::string>();
    if (types_of(schema).size() > 1) text += ", or null";
    return text;
  }
  std::string text;
  for (const std::string& type : types_of(schema)) {
    if (!text.empty()) text += " or ";
    if (type == "boolean") text += "true or false";
    if (type == "integer")
      text += (schema.contains("multipleOf") ? "a multiple of " + schema["multipleOf"].dump()
                                             : "an integer") +
              range_of(schema);
    if (type == "number") text += "a number" + range_of(schema);
    if (type == "string") text += "a text" + such_as(schema);
    if (type == "null") text += "null";
    if (type == "object") text += "an object";
    if (type == "array") {
      const int64_t lo = schema["minItems"].get<int64_t>(), hi = schema["maxItems"].get<int64_t>();
      text += fmt::format("a list of {}, each {}",
                          lo == hi ? fmt::format("{}", lo) : fmt::format("{} to {}", lo, hi),
                          describe_schema(schema["items"]));
    }
  }
  return text;
}

namespace {

// Proposes the name that was meant, out of a long list of names.
std::string hint(const Json& schema, const Json& value) {
  constexpr size_t kLong = 8;
  if (!schema.contains("enum") || schema["enum"].size() < kLong || !value.is_string()) return "";
  return fmt::format("; the nearest one is '{}'",
                     nearest_name(printable(value.get<std::string>()),
                                  schema["enum"].get<std::vector<std::string>>()));
}

}  // namespace

void validate(const Json& schema, const Json& value, const std::string& path) {
  if (!fits(schema, value))
    throw ConfigError(path, fmt::format("expected {}, got {}{}", describe_schema(schema),
                                        shown(value), hint(schema, value)));
  if (!value.is_array() || !schema.contains("items")) return;
  for (size_t i = 0; i < value.size(); ++i)
    validate(schema["items"], value[i], fmt::format("{}[{}]", path, i));
}

namespace {

// "data.name=cifar10"
std::string named_value(const Config& config, const std::string& path) {
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      if (section.path(field) != path) continue;
      const Json value = field.get(config);
      return path + "=" + (value.is_string() ? value.get<std::string>() : shown(value));
    }
  FRUGAL_ASSERT(false);
  return "";
}

}  // namespace

bool is_read(const Config& config, const std::string& path) {
  for (const Section& section : config_sections())
    for (const Field& field : section.fields)
      if (section.path(field) == path) return field.reader.reads(config);
  FRUGAL_ASSERT(false);
  return false;
}

std::vector<UnreadKey> unread_keys(const Config& config) {
  static const std::map<const Field*, Json> defaults = [] {
    std::map<const Field*, Json> values;
    for (const Section& section : config_sections())
      for (const Field& field : section.fields) values[&field] = field.get(Config());
    return values;
  }();
  Config effective = config;  // for the message: a memory_budget means another policy
  effective.compression.policy = policy_of(config);
  std::vector<UnreadKey> all;
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      if (field.reader.by.empty()) continue;  // every run reads it
      const Json value = field.get(config), &usual = defaults.at(&field);
      if (value == usual || field.reader.reads(config)) continue;
      std::vector<std::string> with;
      for (const std::string& path : field.reader.by) with.push_back(named_value(effective, path));
      all.push_back(
          {section.path(field),
           fmt::format("expected {}, the default, since nothing reads it with {}; it is "
                       "read by {}; got {}",
                       usual.dump(), fmt::join(with, ", "), field.reader.who, shown(value))});
    }
  return all;
}

}  // namespace frugal::apps
