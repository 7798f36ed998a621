// A choice says how activations are kept, and its names are those of the table.
#include "compress/policies/choice.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "compress/policies/adaptive_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/fixed_policy.h"
#include "compress/policies/levels.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/policy_roles.h"

namespace frugal::compress {
namespace {

PolicyRoles roles_of(SavePolicy& policy) {
  PolicyRoles roles;
  policy.add_roles(roles);
  return roles;
}

TEST_CASE("a choice without words is the program's default: 4 bits") {
  CHECK(Choice{}.policy == bits(4).policy);
  CHECK(Choice{}.kind() == PolicyKind::gact);
  CHECK(Choice{}.bits() == 4);
  CHECK(!Choice{}.is_adaptive());
}

TEST_CASE("bits say what is packed: raw, one width, or an average") {
  CHECK(std::get<FixedPolicyOptions>(bits(0).policy).bits == 0);
  CHECK(std::get<FixedPolicyOptions>(bits(8, {.min_elements = 7}).policy).min_elements == 7);
  CHECK(std::get<AdaptiveOptions>(bits(2.5).policy).average == 2.5);
  CHECK(bits(2.5).is_adaptive());
  for (const double wrong : {0.5, -1.0, 16.5, 17.0})
    CHECK_THROWS_WITH_AS(bits(wrong), doctest::Contains("expected 0, or 1 to 16 bits"), Error);
}

TEST_CASE("a budget is said, and kept by somebody else") {
  const Choice choice = budget("2 GiB");
  CHECK(choice.memory_budget() == "2 GiB");
  CHECK(choice.kind() == PolicyKind::budget);
  CHECK(bits(4).memory_budget().empty());
}

TEST_CASE("each name of the table is a choice of its policy that makes a policy") {
  for (const Named& each : named_choices()) {
    CAPTURE(each.name);
    if (!each.same_as.empty()) continue;
    CHECK(each.choice.kind() == each.policy);
    CHECK(make_policy(each.choice, kCpu, 1) != nullptr);
    if (each.of != Named::level) CHECK(preset(each.name).policy == each.choice.policy);
  }
  CHECK(preset("small").entropy);
  CHECK(preset("small").bits() == 3);
  CHECK(presets().front().name == "lossless");
  CHECK_THROWS_WITH_AS(preset("tiny"), doctest::Contains("expected a preset of lossless"), Error);
}

TEST_CASE("a paper's level may need a folder, and has no other") {
  const std::string folder = std::filesystem::temp_directory_path().string();
  CHECK(std::get<ActnnOptions>(paper("actnn", "L3").policy).mixed);
  CHECK(paper("actnn", "L5", folder).offload->directory == folder);
  CHECK_THROWS_WITH_AS(paper("actnn", "L4"), doctest::Contains("a folder for a file"), Error);
  CHECK_THROWS_WITH_AS(paper("gact", "L1", folder), doctest::Contains("no folder"), Error);
  CHECK_THROWS_WITH_AS(paper("gact", "L9"), doctest::Contains("expected a level of L0"), Error);
  for (const char* none : {"acgc", "budget", "sz"})
    CHECK_THROWS_WITH_AS(paper(none, "L1"), doctest::Contains("expected a policy with levels"),
                         Error);
}

TEST_CASE("the seed of a choice's policy is that of the run") {
  const auto seed_of = [](const std::unique_ptr<SavePolicy>& policy) {
    return dynamic_cast<FixedPolicy&>(*policy).codec().options().seed;
  };
  CHECK(seed_of(make_policy(bits(4, {.seed = 3}), kCpu, 7)) == 7);
}

TEST_CASE("a policy of one's own is wrapped like any other") {
  Choice choice{.policy = OwnPolicy{[](Device, uint64_t seed) {
                  return std::make_unique<AdaptivePolicy>(AdaptiveOptions{.keep = {.seed = seed}});
                }}};
  choice.entropy = true;
  CHECK(choice.kind() == PolicyKind::own);
  const auto policy = make_policy(choice, kCpu, 7);
  const PolicyRoles roles = roles_of(*policy);
  CHECK(roles.is_wrapped);
  CHECK(roles.adaptive != nullptr);
  choice.policy = OwnPolicy{[](Device, uint64_t) { return std::unique_ptr<SavePolicy>(); }};
  CHECK_THROWS_AS(make_policy(choice, kCpu, 7), Error);
}

TEST_CASE("each policy has its roles, also inside of others") {
  const auto check = [](Choice choice, bool adaptive, bool learner, bool per_sample, bool budget) {
    for (const bool wrapped : {false, true}) {
      choice.entropy = wrapped;
      if (wrapped)
        choice.offload =
            OffloadOptions{.directory = std::filesystem::temp_directory_path().string()};
      const auto policy = make_policy(choice, kCpu, 0);
      const PolicyRoles roles = roles_of(*policy);
      CHECK((roles.adaptive != nullptr) == adaptive);
      CHECK((roles.learner != nullptr) == learner);
      CHECK((roles.per_sample != nullptr) == per_sample);
      CHECK((roles.budget != nullptr) == budget);
      CHECK((roles.plan != nullptr) == budget);
      CHECK(roles.adjustable != nullptr);
      CHECK((roles.offload != nullptr) == wrapped);
      CHECK(roles.is_wrapped == wrapped);
      if (budget) CHECK(roles.adaptive == &roles.budget->adaptive());
    }
  };
  check(bits(4), false, false, false, false);
  check(bits(2.5), true, true, false, false);
  check({.policy = ActnnOptions{}}, false, true, true, false);
  check({.policy = AcgcOptions{}}, false, true, false, false);
  check(budget(""), true, true, false, true);
}

}  // namespace
}  // namespace frugal::compress
