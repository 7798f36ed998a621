// Bisection for the planner. Internal to it.
#pragma once
#include <functional>

#include "compress/policies/budget_policy.h"

namespace frugal::train {

// Calls `fits` with numbers of kept bytes for `items`, from what `plan` gives them to all of them
// raw, towards the largest with which it says true.
void search_bytes(const compress::BudgetPolicy& policy,
                  const std::vector<compress::AdaptivePolicy::Item>& items,
                  const compress::BudgetPlan& plan, const std::function<bool(int64_t)>& fits);

// The largest number in [1, most] with which `fits` says true, where it does up to some number; 0:
// with none.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& fits);

}  // namespace frugal::train
