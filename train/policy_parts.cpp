#include "train/policy_parts.h"

#include "compress/policies/wrapping_policy.h"

namespace frugal::train {
namespace {

// If several policies play a role, the outermost one counts.
template <class Role>
void note(Role*& role, SavePolicy* policy) {
  if (role == nullptr) role = dynamic_cast<Role*>(policy);
}

}  // namespace

PolicyParts::PolicyParts(SavePolicy& whole) : policy(&whole) {
  for (SavePolicy* each = &whole; each != nullptr;) {
    note(adaptive, each);
    note(budget, each);
    note(offload, each);
    note(learner, each);
    note(adjustable, each);
    note(per_sample, each);
    auto* const around = dynamic_cast<compress::WrappingPolicy*>(each);
    each = around != nullptr ? &around->inner() : nullptr;
  }
  if (adaptive == nullptr && budget != nullptr) adaptive = &budget->adaptive();
}

}  // namespace frugal::train
