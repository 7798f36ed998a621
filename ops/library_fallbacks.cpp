#include "ops/library_fallbacks.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "core/log.h"

namespace frugal::ops {
namespace {

struct Known {
  std::mutex mutex;
  std::map<std::string, LibraryFallback> by_name;
};
Known& known() {
  static auto* one = new Known;  // never destroyed: ops may run while the process ends
  return *one;
}

}  // namespace

void note_fallback(const std::string& what, const std::string& instead) {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  LibraryFallback& one = all.by_name[what];
  if (one.count++ > 0) return;
  one.what = what;
  one.instead = instead;
  log().warn("slower: {}: {} instead", what, instead);
}

std::vector<LibraryFallback> library_fallbacks() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  std::vector<LibraryFallback> found;
  for (const auto& [what, one] : all.by_name) found.push_back(one);
  std::stable_sort(
      found.begin(), found.end(),
      [](const LibraryFallback& a, const LibraryFallback& b) { return a.count > b.count; });
  return found;
}

void forget_fallbacks() {
  Known& all = known();
  const std::lock_guard lock(all.mutex);
  all.by_name.clear();
}

}  // namespace frugal::ops
