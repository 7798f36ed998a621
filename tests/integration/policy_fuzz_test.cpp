// Policies that learn from backward, on random graphs: no op, shape or sharing stops them, what
// they do can be repeated, and nothing stays behind.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/budget_policy.h"
#include "compress/policies/entropy_policy.h"
#include "compress/policies/offload_policy.h"
#include "tests/autograd/walk.h"
#include "tests/integration/random_graph.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr uint64_t kPolicyGraphs = 40;
constexpr uint64_t kSteps = 3;

FixedPolicyOptions keep_all(bool recipes, int bits = 4) {
  FixedPolicyOptions options;
  options.recipes = recipes;
  options.bits = bits;
  options.min_elements = 0;
  return options;
}

Numbers run_step(RandomGraph& graph, SavePolicy* policy, uint64_t step) {
  Variables roots;
  {
    PolicyScope scope(policy);
    begin_step(step);
    roots = graph.forward(step - 1);
  }
  graph.backward(std::move(roots), policy ? policy->observer() : nullptr);
  Numbers gradients = graph.gradients();
  graph.zero_grad();
  return gradients;
}

std::vector<Numbers> run(RandomGraph& graph, SavePolicy& policy) {
  std::vector<Numbers> all;
  graph.zero_grad();
  for (uint64_t step = 1; step <= kSteps; ++step) all.push_back(run_step(graph, &policy, step));
  return all;
}

bool is_finite(const Numbers& gradients) {
  for (const auto& leaf : gradients)
    for (const double value : leaf)
      if (!std::isfinite(value)) return false;
  return true;
}

// REQUIRES: make() gives a policy that knows nothing yet.
template <class Make>
void check_policy(const Make& make, bool large) {
  for (uint64_t seed = 0; seed < (large ? kPolicyGraphs / 5 : kPolicyGraphs); ++seed) {
    CAPTURE(seed);
    CAPTURE(large);
    RandomGraph graph(seed, {.large = large});
    const CategoryBytes before = allocator(kCpu).report().live;
    std::vector<Numbers> first;
    {
      const auto policy = make();
      REQUIRE_NOTHROW(first = run(graph, *policy));
      // What a policy remembers is numbers, not tensors.
      const bool clean = allocator(kCpu).report().live == before;
      CHECK(clean);
    }
    for (const Numbers& step : first) CHECK(is_finite(step));
    const auto again = make();
    const bool equal = run(graph, *again) == first;
    CHECK(equal);
  }
}

}  // namespace

TEST_CASE("actnn takes any graph, again and again") {
  for (const bool recipes : {false, true})
    for (const bool large : {false, true}) {
      CAPTURE(recipes);
      check_policy(
          [&] {
            ActnnOptions options;
            options.average = 2;
            options.mixed = true;
            options.keep = keep_all(recipes);
            options.interval = 1;
            return std::make_unique<ActnnPolicy>(options);
          },
          large);
    }
}

TEST_CASE("acgc takes any graph, again and again") {
  for (const bool recipes : {false, true})
    for (const bool large : {false, true}) {
      CAPTURE(recipes);
      check_policy(
          [&] {
            AcgcOptions options;
            options.rounding = Rounding::nearest;
            options.keep = keep_all(recipes);
            options.interval = 1;
            return std::make_unique<AcgcPolicy>(options);
          },
          large);
    }
}

// A backward pass may write over a tensor that was too small to pack.
TEST_CASE("policies that learn leave alone what is kept raw, in every function") {
  const auto check = [](const walk::Op& op, const walk::Case& c, SavePolicy& policy) {
    const auto plain = walk::run(c.run, op_table::make_inputs(c, DType::f32));
    for (uint64_t step = 1; step <= kSteps; ++step) {
      begin_step(step);
      const auto kept = walk::run(c.run, op_table::make_inputs(c, DType::f32), &policy);
      // A function that knows that it may be packed can take another formula.
      for (size_t i = 0; i < plain.grads.size(); ++i)
        CHECK(walk::distance(kept.grads[i], plain.grads[i]) <=
              op.tolerance * (1 + walk::largest(plain.grads[i])));
    }
  };
  FixedPolicyOptions keep = keep_all(false);
  keep.min_elements = int64_t{1} << 40;
  walk::each_case([&](const walk::Op& op, const walk::Case& c) {
    AcgcOptions acgc;
    acgc.rounding = Rounding::nearest;
    acgc.keep = keep;
    acgc.interval = 1;
    AcgcPolicy by_bounds(acgc);
    check(op, c, by_bounds);
    ActnnOptions actnn;
    actnn.average = 2;
    actnn.mixed = true;
    actnn.keep = keep;
    actnn.interval = 1;
    ActnnPolicy by_formulas(actnn);
    check(op, c, by_formulas);
  });
}

// By the number of the graph: with a file, with an entropy stage, with little or more.
TEST_CASE("a budget's plans take any graph, and a policy that was restored goes on with them") {
  int moved = 0, coded = 0, packed = 0, differing = 0;
  for (uint64_t seed = 0; seed < kPolicyGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed, {.large = seed % 4 == 0});
    const CategoryBytes before = allocator(kCpu).report().live;
    {
      BudgetPolicyOptions options;
      options.keep = keep_all(true);
      const auto wrapped = [&](const std::shared_ptr<BudgetPolicy>& inner) {
        std::shared_ptr<SavePolicy> outer = inner;
        if (seed % 3 == 0) outer = std::make_shared<EntropyPolicy>(outer);
        OffloadOptions file;
        file.directory = std::filesystem::temp_directory_path().string();
        if (seed % 2 == 0) outer = std::make_shared<OffloadPolicy>(outer, file);
        return outer;
      };
      const auto inner = std::make_shared<BudgetPolicy>(options);
      BudgetPolicy& policy = *inner;
      const std::shared_ptr<SavePolicy> outer = wrapped(inner);
      policy.adopt({.mode = BudgetPlan::exact});
      const bool exact = run_step(graph, outer.get(), 1) == run_step(graph, nullptr, 1);
      CHECK(exact);

      BudgetPlan plan{.mode = BudgetPlan::mixed};
      policy.adopt(plan);
      CHECK(is_finite(run_step(graph, outer.get(), 1)));
      const auto items = policy.items();
      int64_t raw = 0, least = 0;
      for (const auto& item : items) {
        raw += policy.bytes(item, AdaptivePolicy::kRaw);
        least += policy.bytes(item, policy.adaptive().least_bits(item));
      }
      if (policy.can_move()) plan.moved = uniform_int({seed, 3}, 0, 20);
      const int64_t most = least + (raw - least) / (seed % 5 == 0 ? 2 : 10);
      REQUIRE(policy.allocate(items, std::max(most, least), plan));
      policy.limit(items, plan);
      policy.adopt(plan);
      int64_t kept = 0;
      for (const auto& item : items) {
        const int bits = plan.bits.at(item.seq);
        packed += bits != AdaptivePolicy::kRaw;
        if (item.seq < plan.moved)
          ++moved;
        else
          kept += policy.bytes(item, bits);
      }
      CHECK(kept <= std::max(most, least));
      coded += static_cast<int>(plan.coded.size());

      const auto restored = std::make_shared<BudgetPolicy>(options);
      const std::shared_ptr<SavePolicy> around = wrapped(restored);
      restored->restore_learned(policy.learned());
      const Numbers gradients = run_step(graph, outer.get(), 2);
      CHECK(is_finite(gradients));
      const bool equal = run_step(graph, around.get(), 2) == gradients;
      CHECK(equal);
      differing += run_step(graph, nullptr, 2) != gradients;
    }
    const bool clean = allocator(kCpu).report().live == before;
    CHECK(clean);
  }
  CHECK(packed > 0);
  CHECK(differing > static_cast<int>(kPolicyGraphs / 2));
  CHECK(moved > 0);
  CHECK(coded > 0);
}

TEST_CASE("codes coded by their entropy give the gradients of the codes") {
  for (uint64_t seed = 0; seed < kPolicyGraphs; ++seed) {
    CAPTURE(seed);
    RandomGraph graph(seed, {.large = seed % 4 == 0});
    const CategoryBytes before = allocator(kCpu).report().live;
    const auto plain = std::make_shared<FixedPolicy>(keep_all(true, 3));
    EntropyPolicy coded(plain);
    const bool equal = run(graph, coded) == run(graph, *plain);
    CHECK(equal);
    const bool clean = allocator(kCpu).report().live == before;
    CHECK(clean);
  }
}
