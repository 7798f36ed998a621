// Plans of memory budgets: real steps take what was planned.
#include "train/planning/planner.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/train/planning/planned.h"
#include "train/planning/bisect.h"

using namespace frugal;
using namespace frugal::train;
using compress::AdaptivePolicy;
using compress::BudgetPlan;
using compress::BudgetPolicy;

namespace {

PlannedCase gpt() { return planned_gpt(2, 64, 4000); }

// Which of the policy's recipes it rebuilds.
int rebuilt(const BudgetPolicy& policy, bool lossy) {
  int count = 0;
  for (const auto& recipe : policy.recipes())
    count += (recipe.lossy || !lossy) && !policy.plan()->kept.contains(recipe.seq);
  return count;
}

}  // namespace

TEST_CASE("real steps take what was planned, and tighter budgets give less memory and more noise") {
  using Budgets = std::vector<const char*>;
  const Budgets activations{"1x activations", "1/2 activations", "1/4 activations",
                            "1/8 activations"};
  const std::vector<std::pair<PlannedCase, Budgets>> cases{
      {planned_resnet(), {"1x", "1/1.3", "1/1.7", "1/2.2"}},
      {planned_resnet(), activations},
      {planned_mlp(), activations}};
  for (const auto& [net, budgets] : cases) {
    double variance = -1;
    int64_t last = INT64_MAX;
    for (const char* budget : budgets) {
      const PlannerOptions config = net.within(budget);
      const Planner planner(config);
      const auto& this_net = net;
      CAPTURE(this_net.network + " " + budget);
      const StepMemory& planned = planner.planned().memory;
      const int64_t taken =
          planner.of_activations() ? planned.saved() : planned.peak + planner.reserve();
      CHECK(taken <= planner.limit());
      CHECK(2 * taken > planner.limit());
      const auto policy = make_policy(config.choice, kCpu, 1);
      planner.adopt(*PolicyParts(*policy).budget);
      const StepMemory real = real_step(net, policy.get()).memory;
      CHECK(real.saved() == planned.saved());
      CHECK(real.peak >= planned.peak);
      CHECK(real.peak <= planned.peak + planner.reserve());
      CHECK(planner.planned().variance >= variance);
      CHECK(taken < last);
      variance = planner.planned().variance;
      last = taken;
    }
    CHECK(variance > 0);
  }
}

TEST_CASE("steps of transformers take what was planned") {
  // The peak of gpt2 is that of its logits, which no plan lowers.
  const std::vector<std::pair<PlannedCase, std::vector<const char*>>> cases{
      {planned_bert(), {"1/1.2", "1/1.5", "1/8 activations"}},
      {gpt(), {"1/1.5 activations", "1/8 activations"}}};
  for (const auto& [net, budgets] : cases)
    for (const char* budget : budgets) {
      const auto& this_net = net;
      CAPTURE(this_net.network + " " + budget);
      const PlannerOptions config = net.within(budget);
      const Planner planner(config);
      const auto policy = make_policy(config.choice, kCpu, 1);
      planner.adopt(*PolicyParts(*policy).budget);
      const StepMemory planned = planner.planned().memory;
      const StepMemory real = real_step(net, policy.get()).memory;
      CHECK(real.saved() == planned.saved());
      CHECK(real.peak >= planned.peak);
      CHECK(real.peak <= planned.peak + planner.reserve());
    }
}

TEST_CASE("a plain plan keeps what no policy keeps, and has no recipes to look at") {
  for (const PlannedCase& net : {planned_resnet(), gpt()}) {
    CAPTURE(net.network);
    const PlannerOptions config = net.within("1 TiB");
    const Planner planner(config);
    CHECK(planner.planned().plan.mode == BudgetPlan::plain);
    CHECK(planner.report().kept_recipes == 0);
    CHECK(planner.meta_steps() < 14);  // four of them count what kernels take
    const auto policy = make_policy(config.choice, kCpu, 1);
    auto& budget = *PolicyParts(*policy).budget;
    planner.adopt(budget);
    CHECK(budget.state()->bits.empty());
    const StepMemory a = real_step(net, policy.get()).memory;
    const StepMemory b = real_step(net, nullptr).memory;
    CHECK(a.peak == b.peak);
    CHECK(a.saved() == b.saved());
  }
}

TEST_CASE("with room for everything, gradients are those without a policy, bit for bit") {
  for (const PlannedCase& net : {planned_resnet(), planned_mlp()}) {
    const PlannerOptions config = net.within("1 TiB");
    const Planner planner(config);
    CHECK(planner.planned().plan.mode == BudgetPlan::plain);
    const auto policy = make_policy(config.choice, kCpu, 1);
    planner.adopt(*PolicyParts(*policy).budget);
    const TookStep a = real_step(net, policy.get()), b = real_step(net, nullptr);
    CHECK(a.gradients == b.gradients);
    CHECK(a.memory.peak == b.memory.peak);
    // Recipes alone are as exact; the mlp has next to none.
    if (net.network == "mlp") continue;
    const PlannerOptions less = net.within("1/1.2 activations");
    const Planner exact(less);
    CHECK(exact.planned().plan.mode == BudgetPlan::exact);
    const auto other = make_policy(less.choice, kCpu, 1);
    exact.adopt(*PolicyParts(*other).budget);
    const TookStep c = real_step(net, other.get());
    REQUIRE(c.gradients.size() == b.gradients.size());
    CHECK(c.memory.saved() < b.memory.saved());
    // Sums over slices are in another order.
    double distance = 0, norm = 0;
    for (size_t i = 0; i < b.gradients.size(); ++i) {
      distance += std::pow(c.gradients[i] - b.gradients[i], 2);
      norm += std::pow(b.gradients[i], 2);
    }
    CHECK(distance <= 1e-10 * norm);
  }
}

TEST_CASE("recipes are kept raw where there is room, none of them where there is none") {
  const PlannedCase net = planned_resnet();
  auto planned = [&](const char* budget) {
    const PlannerOptions config = net.within(budget);
    const Planner planner(config);
    CHECK(planner.planned().memory.saved() <= planner.limit());
    const auto policy = make_policy(config.choice, kCpu, 1);
    auto& found = *PolicyParts(*policy).budget;
    planner.adopt(found);
    const StepMemory real = real_step(net, policy.get()).memory;
    CHECK(real.saved() == planner.planned().memory.saved());
    CHECK(planner.report().kept_recipes == static_cast<int64_t>(found.plan()->kept.size()));
    // One more would be too much.
    for (const auto& recipe : found.recipes())
      if (!found.plan()->kept.contains(recipe.seq))
        CHECK(real.saved() + recipe.raw_bytes > planner.limit());
    struct {
      BudgetPlan plan;
      int recipes, lossy;
    } result{*found.plan(), rebuilt(found, false), rebuilt(found, true)};
    return result;
  };
  const auto most = planned("1/1.05 activations"), fewer = planned("1/1.3 activations");
  CHECK(most.plan.mode == BudgetPlan::exact);
  CHECK(!most.plan.kept.empty());
  CHECK(most.recipes > 0);
  CHECK(most.recipes < fewer.recipes);
  CHECK(most.lossy == 0);
  CHECK(fewer.lossy == 0);
  const auto tight = planned("1/8 activations");
  CHECK(tight.plan.mode == BudgetPlan::mixed);
  CHECK(tight.plan.kept.empty());
  CHECK(tight.lossy > 0);
}

TEST_CASE("what entropy coding was seen to save makes bits, and the budget holds") {
  const PlannedCase net = planned_resnet();
  for (const char* amount : {"1/10 activations", "1/1.9"}) {
    CAPTURE(amount);
    PlannerOptions config = net.within(amount);
    config.choice.entropy = true;
    const PlannerOptions without = net.within(amount);
    Planner planner(config), plain(without);
    const auto policy = make_policy(config.choice, kCpu, 1),
               other = make_policy(without.choice, kCpu, 1);
    auto& budget = *PolicyParts(*policy).budget;
    auto& codeless = *PolicyParts(*other).budget;
    planner.adopt(budget);
    plain.adopt(codeless);
    const auto taken = [&] {
      const StepMemory real = real_step(net, policy.get()).memory;
      CHECK((planner.of_activations() ? real.saved() : real.peak) <= planner.limit());
      CHECK(real.saved() <= planner.planned().memory.saved());
      return real;
    };
    const StepMemory first = taken();
    CHECK(!planner.observe(first, budget));
    real_step(net, other.get());
    planner.plan_again(budget);
    plain.plan_again(codeless);
    CHECK(plain.report().entropy_saved_bytes == 0);
    CHECK(planner.planned().variance <= plain.planned().variance);
    if (planner.of_activations()) {  // decoding takes a part of a peak, but not of activations
      CHECK(planner.report().entropy_saved_bytes > 0);
      CHECK(planner.planned().average_bits > plain.planned().average_bits);
      CHECK(planner.planned().variance < 0.8 * plain.planned().variance);
    }
    // Until nothing is new of the widths that were chosen.
    int again = 0;
    while (again < 20 && planner.observe(taken(), budget)) ++again;
    CHECK(again < 20);
    CHECK(planner.planned().memory.saved() <= planner.limit());
  }
}

TEST_CASE("a plan whose expectations are too good is made again") {
  const PlannedCase net = planned_resnet();
  PlannerOptions config = net.within("1/10 activations");
  config.choice.entropy = true;
  Planner planner(config);
  const auto policy = make_policy(config.choice, kCpu, 1);
  auto& budget = *PolicyParts(*policy).budget;
  planner.adopt(budget);
  real_step(net, policy.get());
  planner.plan_again(budget);
  // As if codes had been a third of what they are.
  std::vector<compress::CodedSizes::Entry> sizes = budget.sizes().entries();
  for (auto& entry : sizes) entry.now /= 3, entry.before /= 3;
  budget.sizes().restore(sizes);
  planner.plan_again(budget);
  const double hoped = planner.planned().variance;
  const StepMemory real = real_step(net, policy.get()).memory;
  CHECK(real.saved() <= planner.limit());
  CHECK(planner.observe(real, budget));
  CHECK(planner.planned().variance > hoped);
  CHECK(planner.planned().memory.saved() <= planner.limit());
}

TEST_CASE("sensitivities move bits") {
  const PlannedCase net = planned_resnet();
  const PlannerOptions config = net.within("1/8 activations");
  Planner planner(config);
  const auto policy = make_policy(config.choice, kCpu, 1);
  auto& budget = *PolicyParts(*policy).budget;
  planner.adopt(budget);
  real_step(net, policy.get());
  const auto items = budget.adaptive().items();
  REQUIRE(items.size() > 4);
  for (const auto& item : items)
    budget.adaptive().measured(item.seq, &item == &items[3] ? 1e6 : 1, 1);
  const int before = planner.planned().plan.bits.at(items[3].seq);
  planner.plan_again(budget);
  const auto& bits = budget.plan()->bits;
  CHECK(bits.at(items[3].seq) > before);
  for (const auto& item : items) CHECK(bits.at(item.seq) <= bits.at(items[3].seq));
  CHECK(planner.planned().memory.saved() <= planner.limit());
}

TEST_CASE("the search for what fits ends, however few bytes there are") {
  const BudgetPolicy policy{compress::BudgetPolicyOptions{}};
  AdaptivePolicy::Item item;
  item.seq = 0;
  item.elements = 64;
  item.shape = {64, 1};
  item.raw_bytes = 256;
  BudgetPlan plan;
  plan.bits[0] = 1;
  int asked = 0;
  search_bytes(policy, {item}, plan, [&](int64_t bytes) {
    REQUIRE(++asked < 30);
    return bytes < 200;
  });
  CHECK(asked > 1);
}
