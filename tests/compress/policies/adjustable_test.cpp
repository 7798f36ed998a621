// Policies that can be kept finer or coarser, through the one interface that they share.
#include "compress/policies/adjustable.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "compress/policies/acgc_policy.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/budget_policy.h"
#include "tests/compress/policies/one_step.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

FixedPolicyOptions small_fixed(Rounding rounding = Rounding::stochastic) {
  FixedPolicyOptions keep;
  keep.min_elements = 100;
  keep.recipes = false;
  keep.rounding = rounding;
  return keep;
}

// Two dense layers, on one batch.
struct Net {
  Variable w1 = Variable::parameter(noise({24, 16}, 1)),
           w2 = Variable::parameter(noise({8, 24}, 2));
  Tensor x = noise({96, 16}, 3), dy = noise({96, 8}, 4);
  std::vector<double> gradient(SavePolicy* policy, uint64_t step) {
    for (const Variable& p : {w1, w2}) Variable(p).zero_grad();
    begin_step(step);
    Variable y;
    {
      PolicyScope scope(policy);
      y = linear(gelu(linear(Variable(x), w1, {})), w2, {});
    }
    backward(y, dy, {}, policy == nullptr ? nullptr : policy->observer());
    std::vector<double> all = w1.grad().to_vector();
    const std::vector<double> more = w2.grad().to_vector();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The squared error that rounding adds, over some steps.
  double error(SavePolicy& policy, uint64_t first) {
    const std::vector<double> exact = gradient(nullptr, 0);
    double sum = 0;
    for (uint64_t step = first; step < first + 20; ++step) {
      const std::vector<double> g = gradient(&policy, step);
      for (size_t i = 0; i < g.size(); ++i) sum += (g[i] - exact[i]) * (g[i] - exact[i]) / 20;
    }
    return sum;
  }
};

// Finer is closer, by what its bits say up to a factor, from the next step on and there and back.
// Who shares bits out by sensitivity gains less from more of them, where tensors are at the most.
template <class P>
void check_steers(P& policy, double from, double to, double factor = 3) {
  Adjustable& adjustable = policy;
  Net net;
  net.error(policy, 1);  // what there is to learn
  REQUIRE(adjustable.fineness() > 0);
  const Adjustable::Range range = adjustable.fineness_range();
  REQUIRE(range.least <= from);
  REQUIRE(to <= range.most);
  CHECK(adjustable.set_fineness(from) == from);
  CHECK(adjustable.fineness() == from);
  net.gradient(&policy, 100);
  const double coarse = net.error(policy, 101);
  CHECK(adjustable.set_fineness(to) == to);
  net.gradient(&policy, 200);
  const double fine = net.error(policy, 201);
  const double ratio = (std::exp2(from) - 1) / (std::exp2(to) - 1);
  CAPTURE(coarse);
  CAPTURE(fine);
  CHECK(fine / coarse < factor * ratio * ratio);
  CHECK(fine / coarse > ratio * ratio / factor);
  CHECK(adjustable.set_fineness(from) == from);
  net.gradient(&policy, 300);
  CHECK(net.error(policy, 301) > 2 * fine);
  CHECK_THROWS_AS(adjustable.set_fineness(range.least - 0.5), Error);
  CHECK_THROWS_AS(adjustable.set_fineness(range.most + 1), Error);
  CHECK(adjustable.fineness() == from);
}

AcgcOptions growth(double e, Rounding rounding = Rounding::stochastic) {
  AcgcOptions options;
  options.keep = small_fixed();
  options.e = e;
  options.interval = 5;
  options.rounding = rounding;
  options.count = rounding == Rounding::nearest ? acgc::Count::worst : acgc::Count::expected;
  return options;
}

}  // namespace

TEST_CASE("fixed and adaptive widths are steered") {
  FixedPolicyOptions keep = small_fixed();
  keep.bits = 6;
  FixedPolicy fixed(keep);
  CHECK(fixed.fineness() == 6);
  CHECK(fixed.fineness_range().step == 1);
  check_steers(fixed, 3, 6);
  AdaptiveOptions options;
  options.keep = small_fixed(Rounding::dithered);
  AdaptivePolicy adaptive(options);
  check_steers(adaptive, 2, 5);
}

TEST_CASE("ActNN's average is steered, at mixed levels in parts of a bit") {
  for (const bool mixed : {false, true}) {
    CAPTURE(mixed);
    ActnnOptions options;
    options.keep = small_fixed();
    options.average = 2;
    options.mixed = mixed;
    options.interval = 1;
    ActnnPolicy policy(options);
    check_steers(policy, 2, 5, 10);
    if (!mixed) {
      CHECK_THROWS_WITH_AS(policy.set_fineness(2.5), doctest::Contains("whole ones if not mixed"),
                           Error);
      continue;
    }
    policy.set_fineness(2.5);
    Net net;
    net.gradient(&policy, 1);
    net.gradient(&policy, 2);
    CHECK(policy.average_bits() == doctest::Approx(2.5).epsilon(0.05));
    // Widths by sensitivity at once, also after a measurement that put back what was learned.
    policy.restore_learned(policy.learned());
    policy.set_fineness(4);
    const auto items = policy.items();
    REQUIRE(items.size() > 1);
    CHECK(policy.average_bits() == doctest::Approx(4).epsilon(0.05));
    CHECK(items.front().bits != items.back().bits);
  }
  ActnnOptions raw;
  raw.average = 0;
  raw.mixed = false;
  ActnnPolicy none(raw);
  CHECK(none.fineness() == 0);
  CHECK_THROWS_AS(none.set_fineness(4), Error);
}

TEST_CASE("AC-GC's growth is steered") {
  AcgcPolicy policy(growth(1));
  CHECK(policy.fineness() == doctest::Approx(4));
  Net net;
  for (uint64_t step = 0; step < 3; ++step) net.gradient(&policy, step);
  const std::vector<double> before = policy.bounds2(0);
  REQUIRE(!before.empty());
  CHECK(policy.set_fineness(6) == 6);
  CHECK(policy.e() == doctest::Approx(15.0 / 63));
  // Known bounds at once; of a product they are in proportion to e.
  const double square = policy.e() * policy.e();
  CHECK(policy.bounds2(0)[0] == doctest::Approx(before[0] * square));
  // The next step is observed, and gives the same but for other errors.
  net.gradient(&policy, 3);
  CHECK(policy.bounds2(0)[0] == doctest::Approx(before[0] * square));  // before it is settled
  net.gradient(&policy, 4);
  CHECK(policy.bounds2(0)[0] == doctest::Approx(before[0] * square).epsilon(0.3));
  // Upwards no more than may be, until then.
  policy.set_e(1);
  CHECK(policy.bounds2(0)[0] <= before[0] * 1.3);
  CHECK(policy.bounds2(0)[0] > before[0] * square);
  const double fine = policy.fineness();
  CHECK_THROWS_AS(policy.set_e(0), Error);
  CHECK_THROWS_AS(policy.set_e(INFINITY), Error);
  CHECK(policy.fineness() == fine);
  AcgcPolicy other(growth(1));
  CHECK(other.set_fineness(6) == 6);
  check_steers(other, 3, 6, 10);
}

TEST_CASE("a budget steers below its plan and forbids more than it") {
  BudgetPolicyOptions options;
  options.keep = small_fixed();
  BudgetPolicy policy(options);
  Adjustable& adjustable = policy;
  CHECK(adjustable.fineness() == 0);  // no plan
  CHECK_THROWS_AS(adjustable.set_fineness(4), Error);
  const std::vector<Tensor> tensors{noise({256, 8}, 1), noise({256, 8}, 2), noise({256, 8}, 3),
                                    noise({256, 8}, 4)};
  BudgetPlan plan;
  plan.mode = BudgetPlan::mixed;
  plan.bits = {{0, 7}, {1, 5}, {2, AdaptivePolicy::kRaw}, {3, 6}};
  policy.adopt(plan);
  CHECK(adjustable.fineness() > 5);
  step(policy, tensors);
  const double most = adjustable.fineness();
  CHECK(adjustable.set_fineness(12) == most);
  CHECK(policy.bits() == plan.bits);
  // Coarser: fewer bytes, no tensor has more, what is raw stays so.
  CHECK(adjustable.set_fineness(3.5) == 3.5);
  int fewer = 0;
  for (const auto& [seq, bits] : policy.bits()) {
    CHECK(bits <= plan.bits.at(seq));
    fewer += bits < plan.bits.at(seq);
  }
  CHECK(fewer == 3);
  CHECK(policy.bits().at(2) == AdaptivePolicy::kRaw);
  CHECK(policy.plan()->bits == plan.bits);
  const auto packed = step(policy, tensors);
  CHECK(dynamic_cast<const Quantized&>(*packed.at(0)).layout().bits == policy.bits().at(0));
  BudgetPlan used = plan;
  used.bits = policy.bits();
  const double variance = BudgetPolicy::variance(policy.items(), used);
  double sensitivity = 0;
  for (const auto& item : policy.items()) sensitivity += *item.sensitivity;
  const double of_all = sensitivity / std::pow(std::exp2(3.5) - 1, 2);
  CHECK(variance <= of_all);
  CHECK(variance > of_all / 4);
  // It goes on elsewhere, and a new plan is coarsened too.
  BudgetPolicy other(options);
  other.adopt(plan);
  other.set_fineness(9);  // the fineness of a fresh run; what was learned counts
  other.restore_learned(policy.learned());
  CHECK(other.bits() == policy.bits());
  CHECK((other.learned() == policy.learned()));
  CHECK(other.fineness() == 3.5);
  plan.bits[1] = 8;
  policy.adopt(plan);
  CHECK(policy.bits().at(1) < 6);
  CHECK(adjustable.set_fineness(16) > 5);
  CHECK(policy.bits() == plan.bits);
  Learned wrong = other.learned();
  wrong.lists.at("bits").pop_back();
  CHECK_THROWS_AS(other.restore_learned(wrong), Error);
  wrong = other.learned();
  wrong.lists.at("fineness") = {0.5};
  CHECK_THROWS_AS(other.restore_learned(wrong), Error);
  // Where nothing is rounded there is nothing to steer.
  policy.adopt({});
  CHECK(adjustable.fineness() == 16);
  CHECK(adjustable.set_fineness(4) == 16);
}

TEST_CASE("policies that round to nearest add no variance that could steer them") {
  FixedPolicyOptions keep = small_fixed(Rounding::nearest);
  CHECK(FixedPolicy(keep).fineness() == 0);
  AdaptiveOptions adaptive;
  adaptive.keep = keep;
  CHECK(AdaptivePolicy(adaptive).fineness() == 0);
  ActnnOptions actnn;
  actnn.keep = keep;
  actnn.average = 2;
  actnn.mixed = true;
  CHECK(ActnnPolicy(actnn).fineness() == 0);
  AcgcPolicy nearest(growth(1, Rounding::nearest));
  CHECK(nearest.fineness() == 0);
  CHECK_THROWS_WITH_AS(nearest.set_fineness(4), doctest::Contains("stochastic rounding"), Error);
  CHECK_THROWS_WITH_AS(AcgcPolicy(growth(1, Rounding::dithered)),
                       "[acgc] expected stochastic or nearest rounding, got dithered", Error);
  BudgetPolicyOptions budget;
  budget.keep = keep;
  BudgetPolicy planned(budget);
  planned.adopt({});
  CHECK(planned.fineness() == 0);
}
