// PolicyParts: a save policy and the roles that it plays, for those who steer it.
#pragma once
#include "compress/policies/adaptive_policy.h"
#include "compress/policies/adjustable.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/learner.h"
#include "compress/policies/offload_policy.h"
#include "compress/policies/per_sample.h"
#include "compress/policies/policy_roles.h"

namespace frugal::train {

struct PolicyParts : compress::PolicyRoles {
  // NOLINTNEXTLINE(google-explicit-constructor): a policy is given where its parts are taken
  PolicyParts(SavePolicy& whole) : policy(&whole) { whole.add_roles(*this); }

  SavePolicy* policy;
};

}  // namespace frugal::train
