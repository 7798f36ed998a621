// From the configuration to the policy that keeps activations.
#pragma once
#include <memory>
#include <string>

#include "apps/config/config.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/wrapping_policy.h"

namespace frugal::apps {

// `seed` drives stochastic rounding. Errors: a folder for offload that takes no file.
std::unique_ptr<SavePolicy> make_policy(const CompressionConfig& config, uint64_t seed);
// For steps on meta alone: takes no memory for a file.
std::unique_ptr<SavePolicy> make_draft_policy(const CompressionConfig& config, uint64_t seed);

// What all policies share. REQUIRES: `config` outlives it.
compress::FixedPolicyOptions keep_options(const CompressionConfig& config, uint64_t seed);

// As resolve() left them, or what the CPU takes.
inline int64_t slice_bytes_of(const CompressionConfig& config) {
  return config.slice_bytes.value_or(SavePolicy::kSliceBytes);
}
std::string rounding_of(const CompressionConfig& config);

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

}  // namespace frugal::apps
