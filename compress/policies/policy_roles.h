// PolicyRoles: what a save policy can do beside deciding, so that nobody asks a policy what it is.
#pragma once

namespace frugal::compress {

class AdaptivePolicy;
class BudgetPolicy;
class OffloadPolicy;
class Learner;
class Adjustable;
class PerSample;
class PackPlan;

// Pointers into one policy, and into the policies that it wraps; null: nobody plays that role. The
// policy must outlive them. SavePolicy::add_roles() fills them. A policy notes its own roles before
// it asks the policy inside: if several policies play a role, the outermost one counts.
struct PolicyRoles {
  AdaptivePolicy* adaptive = nullptr;
  BudgetPolicy* budget = nullptr;
  OffloadPolicy* offload = nullptr;
  Learner* learner = nullptr;
  Adjustable* adjustable = nullptr;
  PerSample* per_sample = nullptr;
  PackPlan* plan = nullptr;
  bool is_wrapped = false;  // the outermost policy changes how another one's bytes are kept

  template <class Role, class Policy>
  static void note(Role*& role, Policy* policy) {
    if (role == nullptr) role = policy;
  }
};

}  // namespace frugal::compress
