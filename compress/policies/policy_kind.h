// PolicyKind: who decides how each tensor is kept. The names are those of configurations and
// checkpoints, and stand here alone.
//   gact    one width, or widths by measured sensitivity (FixedPolicy, AdaptivePolicy)
//   actnn   ActnnPolicy
//   acgc    AcgcPolicy
//   budget  BudgetPolicy
//   own     a policy that a program brings
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace frugal::compress {

enum class PolicyKind : uint8_t { gact, actnn, acgc, budget, own };

constexpr std::string_view name_of(PolicyKind kind) {
  constexpr std::string_view kNames[] = {"gact", "actnn", "acgc", "budget", "own"};
  return kNames[static_cast<size_t>(kind)];
}

// The kind of that name; none: there is no such name. Case counts.
constexpr std::optional<PolicyKind> policy_kind(std::string_view name) {
  for (const auto kind :
       {PolicyKind::gact, PolicyKind::actnn, PolicyKind::acgc, PolicyKind::budget, PolicyKind::own})
    if (name_of(kind) == name) return kind;
  return {};
}

}  // namespace frugal::compress
