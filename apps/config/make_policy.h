// From the configuration to the policy that keeps activations.
#pragma once
#include <memory>
#include <string>

#include "apps/config/config.h"
#include "compress/policies/make_policy.h"

namespace frugal::apps {

// The policy with all that wraps it, as options. Errors: rounding or groups that the policy cannot
// use.
compress::PolicyOptions policy_options(const CompressionConfig& config, uint64_t seed);

// `seed` drives stochastic rounding. Errors: a folder for offload that takes no file.
std::unique_ptr<SavePolicy> make_policy(const CompressionConfig& config, uint64_t seed);
// Makes the policy for steps on meta alone: it takes no memory for a file.
std::unique_ptr<SavePolicy> make_draft_policy(const CompressionConfig& config, uint64_t seed);

// What steps on meta take an element to need with policy acgc, without a profile.
double assumed_acgc_bits(const CompressionConfig& config);

// What all policies share. REQUIRES: `config` outlives it.
compress::FixedPolicyOptions keep_options(const CompressionConfig& config, uint64_t seed);

// What resolve() left, or what the CPU takes.
inline int64_t slice_bytes_of(const CompressionConfig& config) {
  return config.slice_bytes.value_or(SavePolicy::kSliceBytes);
}

}  // namespace frugal::apps
