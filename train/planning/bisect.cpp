#include "train/planning/bisect.h"

#include <algorithm>

namespace frugal::train {

void search_bytes(const compress::BudgetPolicy& policy,
                  const std::vector<compress::AdaptivePolicy::Item>& items,
                  const compress::BudgetPlan& plan, const std::function<bool(int64_t)>& fits) {
  constexpr int64_t kFine = 512;
  int64_t low = 0, high = 0;
  for (const auto& item : items) {
    if (item.seq < plan.moved) continue;
    low += policy.bytes(item, plan.bits.at(item.seq));
    high += policy.bytes(item, compress::AdaptivePolicy::kRaw);
  }
  if (fits(high)) return;
  while (high - low > std::max<int64_t>(high / kFine, 1)) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
}

int64_t largest(int64_t most, const std::function<bool(int64_t)>& fits) {
  if (fits(most)) return most;
  int64_t low = 0, high = most;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace frugal::train
