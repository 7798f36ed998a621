// Whole numbers of JSON files that somebody else may have written.
#pragma once
#include <cmath>
#include <cstdint>

#include "apps/json.h"
#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::apps {

// A fraction is cut. A conversion by get<int64_t>() has no defined result for what is too large.
// Errors: no number; one below -2^53 or above 2^53.
inline int64_t whole_number(const Json& value) {
  FRUGAL_CHECK(value.is_number() && std::abs(value.get<double>()) <= 0x1p53,
               "expected a whole number of at most 2^53, got {}",
               in_quotes(value.dump(-1, ' ', false, Json::error_handler_t::replace)));
  return value.get<int64_t>();
}

}  // namespace frugal::apps
