// Bisection for the planner. Internal to it.
#pragma once
#include <functional>

#include "compress/policies/budget_policy.h"

namespace frugal::train {

// Calls `fits` with numbers of kept bytes for `items`, and so searches for the largest with which
// it says true. The numbers lie between what `plan` gives the items and all of them raw.
void search_bytes(const compress::BudgetPolicy& policy,
                  const std::vector<compress::AdaptivePolicy::Item>& items,
                  const compress::BudgetPlan& plan, const std::function<bool(int64_t)>& fits);

// The largest number in [1, most] with which `fits` says true. 0: it says so with none. REQUIRES:
// it says true up to some number, and false beyond.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& fits);

}  // namespace frugal::train
