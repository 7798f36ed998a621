// Policies that learn from backward, on random graphs: no op, shape or sharing stops them, what
// they do can be repeated, and nothing stays behind.
#include <doctest/doctest.h>

#include <cmath>

#include "compress/acgc_policy.h"
#include "compress/actnn_policy.h"
#include "compress/entropy_policy.h"
#include "tests/integration/random_graph.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

constexpr uint64_t kGraphs = 40;
constexpr uint64_t kSteps = 3;

FixedPolicyOptions keep_all(bool recipes, int bits = 0) {
  FixedPolicyOptions options;
  options.recipes = recipes;
  options.bits = bits;
  options.min_elements = 0;
  return options;
}

std::vector<Numbers> run(RandomGraph& graph, SavePolicy& policy) {
  std::vector<Numbers> all;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    graph.zero_grad();
    Variables roots;
    {
      PolicyScope scope(&policy);
      begin_step(step);
      roots = graph.forward(step - 1);
    }
    graph.backward(std::move(roots), policy.observer());
    all.push_back(graph.gradients());
  }
  graph.zero_grad();
  return all;
}

// REQUIRES: make() gives a policy that knows nothing yet.
template <class Make>
void check_policy(const Make& make, bool large) {
  for (uint64_t seed = 0; seed < (large ? kGraphs / 5 : kGraphs); ++seed) {
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
    bool finite = true;
    for (const Numbers& step : first)
      for (const auto& leaf : step)
        for (const double value : leaf) finite = finite && std::isfinite(value);
    CHECK(finite);
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
            options.keep = keep_all(recipes);
            options.interval = 1;
            return std::make_unique<AcgcPolicy>(options);
          },
          large);
    }
}

TEST_CASE("codes coded by their entropy give the gradients of the codes") {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
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
