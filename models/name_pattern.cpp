#include "models/name_pattern.h"

#include <fnmatch.h>

namespace frugal::models {

bool fits(const std::string& pattern, const std::string& name) {
  return name.starts_with(pattern) || fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace frugal::models
