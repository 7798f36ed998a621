// What a name in a configuration stands for.
#pragma once
#include <initializer_list>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace frugal::apps {

// The value beside `name` in `list`. The schema and the command line let no other name through. So
// a name that they know and the list does not is our mistake: it throws InternalError.
template <class Value>
Value value_named(std::string_view name,
                  std::initializer_list<std::pair<std::string_view, Value>> list) {
  for (const auto& [known, value] : list)
    if (known == name) return value;
  throw InternalError(fmt::format("no value is named {}", name));
}

}  // namespace frugal::apps
