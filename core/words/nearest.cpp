#include "core/words/nearest.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"

namespace frugal {

int64_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), int64_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i) + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const int64_t above = row[j + 1];
      row[j + 1] = std::min({above + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

std::string nearest_name(const std::string& given, const std::vector<std::string>& names) {
  FRUGAL_ASSERT(!names.empty());
  const auto cost = [&](const std::string& name) {
    return given.size() >= 3 && name.starts_with(given) ? 0 : edit_distance(given, name);
  };
  return *std::min_element(names.begin(), names.end(),
                           [&](const auto& a, const auto& b) { return cost(a) < cost(b); });
}

}  // namespace frugal
