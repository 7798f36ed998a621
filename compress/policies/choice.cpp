#include "compress/policies/choice.h"

#include <cmath>
#include <type_traits>

#include "compress/policies/levels.h"
#include "compress/policies/policy_kind.h"
#include "compress/quantize/group_layout.h"

namespace frugal::compress {
namespace {

template <class Options>
auto& keep_in(Options& options) {
  return std::visit(
      [](auto& policy) -> auto& {
        if constexpr (std::is_same_v<std::decay_t<decltype(policy)>, FixedPolicyOptions>)
          return policy;
        else
          return policy.keep;
      },
      options.policy);
}

}  // namespace

PolicyKind Choice::kind() const {
  if (std::holds_alternative<ActnnOptions>(policy)) return PolicyKind::actnn;
  if (std::holds_alternative<AcgcOptions>(policy)) return PolicyKind::acgc;
  if (std::holds_alternative<BudgetPolicyOptions>(policy)) return PolicyKind::budget;
  if (std::holds_alternative<OwnPolicy>(policy)) return PolicyKind::own;
  return PolicyKind::gact;
}

FixedPolicyOptions& Choice::keep() { return keep_in(*this); }
const FixedPolicyOptions& Choice::keep() const { return keep_in(*this); }

double Choice::bits() const {
  if (const auto* fixed = std::get_if<FixedPolicyOptions>(&policy)) return fixed->bits;
  if (const auto* adaptive = std::get_if<AdaptiveOptions>(&policy)) return adaptive->average;
  if (const auto* actnn = std::get_if<ActnnOptions>(&policy)) return actnn->average;
  return 0;
}

bool Choice::is_adaptive() const {
  if (const auto* actnn = std::get_if<ActnnOptions>(&policy)) return actnn->mixed;
  return std::holds_alternative<AdaptiveOptions>(policy);
}

std::string Choice::memory_budget() const {
  const auto* budget = std::get_if<BudgetPolicyOptions>(&policy);
  return budget != nullptr ? budget->memory : "";
}

Choice bits(double bits, const FixedPolicyOptions& keep) {
  FRUGAL_CHECK(bits == 0 || (bits >= 1 && bits <= kMaxBits),
               "[compression] expected 0, or 1 to {} bits, got {}", kMaxBits, bits);
  if (bits != std::floor(bits)) return {.policy = AdaptiveOptions{.keep = keep, .average = bits}};
  FixedPolicyOptions fixed = keep;
  fixed.bits = static_cast<int>(bits);
  return {.policy = fixed};
}

Choice budget(std::string memory, const FixedPolicyOptions& keep) {
  return {.policy = BudgetPolicyOptions{.keep = keep, .memory = std::move(memory)}};
}

Choice preset(std::string_view name) {
  std::string known;
  for (const Named& each : presets()) {
    if (each.name == name) return each.choice;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", each.name, each.summary);
  }
  throw Error(fmt::format("[compression] expected a preset of {}, got \"{}\"", known, name));
}

Choice paper(std::string_view policy, std::string_view name, const std::string& folder) {
  const std::optional<PolicyKind> kind = policy_kind(policy);
  FRUGAL_CHECK(kind && !levels(*kind).empty(),
               "[compression] expected a policy with levels, {} or {}, got \"{}\"",
               name_of(PolicyKind::gact), name_of(PolicyKind::actnn), policy);
  const Named& found = level(name, *kind);
  FRUGAL_CHECK(found.offload == !folder.empty(), "[compression] expected {} with level {}, got {}",
               found.offload ? "a folder for a file" : "no folder", name,
               folder.empty() ? "none" : "one");
  Choice choice = found.choice;
  if (found.offload) choice.offload = OffloadOptions{.directory = folder};
  return choice;
}

}  // namespace frugal::compress
