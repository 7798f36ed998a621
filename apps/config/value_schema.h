// JSON Schemas of the values that keys take, as `frugal schema` writes them.
#pragma once
#include <cstdint>

#include "apps/json.h"

namespace frugal::apps::schema {

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

}  // namespace frugal::apps::schema
