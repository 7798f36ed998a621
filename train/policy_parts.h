// PolicyParts: the roles that a save policy plays, so that nobody else asks a policy what it is.
#pragma once
#include "autograd/saved_tensor.h"
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/adjustable.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/learner.h"
#include "compress/policies/offload_policy.h"
#include "compress/policies/per_sample.h"

namespace frugal::train {

// Pointers into one policy, and into the policies that it wraps; null: the policy does not have
// that role. The policy must outlive them.
struct PolicyParts {
  // NOLINTNEXTLINE(google-explicit-constructor): a policy is given where its parts are taken
  PolicyParts(SavePolicy& policy);

  SavePolicy* policy;
  compress::AdaptivePolicy* adaptive = nullptr;
  compress::BudgetPolicy* budget = nullptr;
  compress::OffloadPolicy* offload = nullptr;
  compress::Learner* learner = nullptr;
  compress::Adjustable* adjustable = nullptr;
  compress::PerSample* per_sample = nullptr;
};

}  // namespace frugal::train
