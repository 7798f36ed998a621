// Finds a policy of a given class in what make_policy() made. The product asks PolicyParts for
// roles.
#pragma once
#include <type_traits>

#include "compress/policies/budget_policy.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::train {

// The P that `policy` is or wraps, or nullptr. A budget policy has an adaptive policy of its own,
// which holds its widths and sensitivities.
template <class P>
P* find_in(SavePolicy& policy) {
  if (auto* found = dynamic_cast<P*>(&policy)) return found;
  if (auto* around = dynamic_cast<compress::WrappingPolicy*>(&policy))
    return find_in<P>(around->inner());
  if constexpr (std::is_same_v<P, compress::AdaptivePolicy>)
    if (auto* budget = dynamic_cast<compress::BudgetPolicy*>(&policy)) return &budget->adaptive();
  return nullptr;
}

}  // namespace frugal::train
