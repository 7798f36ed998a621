// JSON Schemas of the values that keys take, as `frugal schema` writes them, and networks' values
// as JSON.
#pragma once
#include <cstdint>

#include "apps/json.h"
#include "core/option.h"

namespace frugal::apps {

namespace schema {

inline Json boolean() { return {{"type", "boolean"}}; }
inline Json text() { return {{"type", "string"}}; }
inline Json integer(int64_t lo, int64_t hi) {
  return {{"type", "integer"}, {"minimum", lo}, {"maximum", hi}};
}
inline Json number(double lo, double hi) {
  return {{"type", "number"}, {"minimum", lo}, {"maximum", hi}};
}
// Numbers in (0, hi].
inline Json positive(double hi) {
  return {{"type", "number"}, {"exclusiveMinimum", 0.0}, {"maximum", hi}};
}

}  // namespace schema

Json schema_of(const by_name::Range& range);
Json layers_schema();  // describes the list model.modules, for validation and editors
Json json_of(const by_name::Value& value);
by_name::Value value_of(const Json& json);
// Numbers as the range wants them: 1e3 is an integer, and 1 may be 1.0; "2 GiB" is bytes.
// REQUIRES: a value that fits.  Errors: more bytes than there are, at `path`.
by_name::Value value_of(const by_name::Range& range, const Json& json, const std::string& path);

}  // namespace frugal::apps
