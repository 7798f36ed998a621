// Options and plans that the tests of budgets share.
#pragma once
#include <map>
#include <utility>

#include "compress/policies/budget_policy.h"

namespace frugal::compress {

inline BudgetPolicyOptions small_budget() {
  BudgetPolicyOptions options;
  options.keep.min_elements = 100;
  return options;
}

inline BudgetPlan mixed(std::map<uint64_t, int> bits) {
  BudgetPlan plan;
  plan.mode = BudgetPlan::mixed;
  plan.bits = std::move(bits);
  return plan;
}

}  // namespace frugal::compress
