#include "data/image/picture_stems.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/image/picture.h"

namespace frugal::data {

std::map<std::string, std::string> pictures_by_stem(const char* op, const std::string& folder,
                                                    const std::string& suffix,
                                                    bool only_with_suffix) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> all;
  std::string twice;  // the first name that two pictures have
  std::pair<std::string, std::string> pair;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; entry != end && !error;
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (!has_picture_name(path.string())) continue;
    std::string stem = path.lexically_relative(folder).replace_extension().generic_string();
    const bool has_suffix = !suffix.empty() && stem.ends_with(suffix);
    if (only_with_suffix && !has_suffix) continue;
    if (has_suffix) stem.resize(stem.size() - suffix.size());
    const auto [known, added] = all.emplace(std::move(stem), path.string());
    if (!added && (twice.empty() || known->first < twice)) {
      twice = known->first;
      pair = std::minmax(known->second, path.string());
    }
  }
  FRUGAL_CHECK(!error, "[{}] cannot read {}: {}", op, in_quotes(folder), error.message());
  FRUGAL_CHECK(pair.first.empty(),
               "[{}] expected pictures whose names differ before their endings, got {} and {}; "
               "take one of them away",
               op, in_quotes(pair.first), in_quotes(pair.second));
  return all;
}

}  // namespace frugal::data
