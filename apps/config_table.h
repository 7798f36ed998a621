// The table of configuration keys. Internal to the config layer.
#pragma once
#include <functional>

#include "apps/config.h"

namespace frugal::apps {

struct Field {
  std::string key;
  Json schema;  // what the value must be, as JSON Schema: validation and schema.json both use it
  std::string doc;
  std::function<Json(const Config&)> get;
  std::function<void(Config&, const Json&)> set;  // REQUIRES: the value fits `schema`
  bool affects_results = true;
};

struct Section {
  std::string name;  // empty: the top level
  std::string doc;
  std::vector<Field> fields;
  std::string path(const Field& field) const {
    return name.empty() ? field.key : name + "." + field.key;
  }
};

const std::vector<Section>& config_sections();

// Does `value` fit `schema`? Throws ConfigError(path) saying what was expected. Knows type, enum,
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, items, minItems, maxItems, pattern,
// multipleOf.
void validate(const Json& schema, const Json& value, const std::string& path);
std::string describe_schema(const Json& schema);  // "an integer in [1, 8]"

// "2 GiB", "512MB", "1048576" as bytes. REQUIRES: matches kBytesPattern. Errors: 8 EiB or more,
// ConfigError with `path`.
inline constexpr const char* kBytesPattern = "^[0-9]+([.][0-9]+)? *([KMGT]i?B|B)?$";
int64_t parse_bytes(const std::string& text, const std::string& path = "memory_limit");

}  // namespace frugal::apps
