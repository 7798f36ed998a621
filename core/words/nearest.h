// The name that a user may have meant.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace frugal {

// Levenshtein's distance: insertions, deletions and replacements of one byte that make a into b.
int64_t edit_distance(const std::string& a, const std::string& b);

// The one of `names` that is closest to `given`. A name that `given` begins, such as kernel of
// kernel_size, comes before all others. REQUIRES: names.
std::string nearest_name(const std::string& given, const std::vector<std::string>& names);

}  // namespace frugal
