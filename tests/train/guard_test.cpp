// The guard over every policy: it raises what is too coarse and lowers what is too fine.
#include <doctest/doctest.h>

#include <cmath>

#include "compress/policies/policy_kind.h"
#include "compress/policies/policy_roles.h"
#include "ops/dense/elementwise.h"
#include "tests/train/find_in.h"
#include "tests/train/tiny_run.h"
#include "train/noise/convergence.h"
#include "train/planning/own_plan.h"

using namespace frugal;
using namespace frugal::train;

namespace {

// A small network on noise whose weights hardly move.
struct Guarded : PolicyRun {
  std::shared_ptr<Planner> planner;
  std::optional<Tracking> tracking;

  Guarded(const compress::Choice& choice, double guard) : PolicyRun(recipe(choice), choice) {
    if (!choice.memory_budget().empty()) {
      TrainerOptions options = recipe(choice).options;
      planner = plan_of_own(options, model(), run.optimizer(), run.batches());
      planner->adopt(*find_in<compress::BudgetPolicy>(*policy));
    }
    TrackingOptions options;
    options.batch = 64;
    options.momentum = 0.9;
    options.guard = guard;
    tracking.emplace(task(), model(), *policy, options);
  }
  void step(int64_t number) {
    const Batch batch = next();
    model().zero_grad();
    if (number > 3) tracking->before(batch, number);
    gradient(batch, static_cast<uint64_t>(number));
    tracking->stepped(1e-4, 1);
    if (number > 3) tracking->after(number);
  }
  double start() const { return tracking->state()[0]; }

 private:
  static RunRecipe recipe(const compress::Choice& choice) {
    const std::vector<int64_t> hidden = {128, 64};
    RunRecipe made = tiny_run("mlp", {{"hidden", hidden}}, TinyImages{.samples = 2048});
    made.options.compression.choice = choice;
    return made;
  }
};

// As a run does that goes on from its checkpoint.
void stop_and_resume(std::optional<Guarded>& p, const compress::Choice& choice, double guard) {
  const std::vector<double> state = p->tracking->state();
  const compress::Learned learned = find_in<compress::Learner>(*p->policy)->learned();
  const data::LoaderState at = p->run.batches().state();
  const auto* adaptive = find_in<compress::AdaptivePolicy>(*p->policy);
  const auto widths = adaptive != nullptr ? std::optional(adaptive->state()) : std::nullopt;
  const auto planned = p->planner ? std::optional(p->planner->state()) : std::nullopt;
  p.emplace(choice, guard);
  p->run.batches().seek(at);
  p->tracking->restore(state);
  if (widths) find_in<compress::AdaptivePolicy>(*p->policy)->restore(*widths);
  find_in<compress::Learner>(*p->policy)->restore_learned(learned);
  if (planned) p->planner->resume(*planned, *find_in<compress::BudgetPolicy>(*p->policy));
}

// Returns what is packed with `bits` by a share of 2^-bits too small: a bias without a variance.
class Shrinking final : public SavePolicy, public compress::Adjustable, private Codec {
 public:
  Shrinking() : keep_({.recipes = false, .min_elements = 4095}) {}
  Decision decide(const SaveInfo& info, const Tensor& value) override {
    Decision decision = keep_.decide(info, value);
    if (decision.codec != nullptr) decision.codec = this;
    return decision;
  }
  void add_roles(compress::PolicyRoles& roles) override {
    compress::PolicyRoles::note(roles.adjustable, this);
  }
  double fineness() const override { return bits_; }
  Range fineness_range() const override { return {}; }
  double set_fineness(double bits) override { return bits_ = bits; }

 private:
  struct Shrunk final : Packed {
    Tensor value;
    Tensor unpack() const override { return value; }
  };
  std::unique_ptr<Packed> pack(const Tensor& tensor, const SaveInfo&) const override {
    const CategoryScope scope(Category::packed);
    auto packed = std::make_unique<Shrunk>();
    packed->value = ops::affine(tensor, 1 - std::exp2(-bits_), 0);
    return packed;
  }
  compress::FixedPolicy keep_;
  double bits_ = 1;
};

// Only the tensors of whole batches have more elements.
constexpr compress::FixedPolicyOptions kKeep{.min_elements = 4095};

}  // namespace

TEST_CASE("the guard steers ActNN's average and AC-GC's growth, and goes on after a stop") {
  struct Row {
    compress::Choice choice;
    bool rises;
  };
  using compress::ActnnOptions;
  const ActnnOptions coarse{
      .keep = {.recipes = false, .min_elements = 4095}, .average = 1, .mixed = true, .interval = 4},
      fine{.keep = kKeep, .average = 8, .mixed = true};
  const compress::AcgcOptions strict{
      .e = 0.001, .count = compress::acgc::Count::expected, .interval = 4, .keep = kKeep};
  for (const Row& row : {Row{{.policy = coarse}, true}, Row{{.policy = fine}, false},
                         Row{{.policy = strict}, false}}) {
    CAPTURE(compress::name_of(row.choice.kind()));
    Guarded p(row.choice, 0.02);
    const double start = p.start();
    std::optional<Guarded> other;
    other.emplace(row.choice, 0.02);
    for (int64_t i = 1; i <= 24; ++i) {
      p.step(i);
      other->step(i);
      if (i == 9) stop_and_resume(other, row.choice, 0.02);
    }
    const Convergence found = p.tracking->report().value();
    CAPTURE(found.added_share);
    CHECK(found.guard_limited == false);
    CHECK((found.next_bits.value() > start) == row.rises);
    CHECK(found.next_bits != start);
    CHECK(other->tracking->state() == p.tracking->state());
  }
}

TEST_CASE("the guard acts on a bias that has no variance") {
  const compress::Choice choice{.policy = compress::OwnPolicy{[](Device, uint64_t) {
                                  return std::make_unique<Shrinking>();
                                }}};
  Guarded p(choice, 0.02);
  REQUIRE(p.start() == 1);
  for (int64_t i = 1; i <= 16; ++i) p.step(i);
  const Convergence found = p.tracking->report().value();
  CHECK(found.added_variance == 0);
  CHECK(found.bits.value() > 1);
  CHECK(found.added_share < 0.02 * 1.3);
  CHECK(found.added_share == doctest::Approx(found.bias_share.value()));
}

TEST_CASE(
    "a budget takes less than it has where that adds little, and says where it forbids more") {
  Guarded roomy(compress::budget("1/3 activations", kKeep), 0.5);
  auto& policy = *find_in<compress::BudgetPolicy>(*roomy.policy);
  REQUIRE(policy.plan()->mode == compress::BudgetPlan::mixed);
  const double start = policy.fineness();
  for (int64_t i = 1; i <= 16; ++i) roomy.step(i);
  CHECK(roomy.tracking->report()->next_bits.value() < start);
  CHECK(policy.bits() != policy.plan()->bits);
  for (const auto& [seq, bits] : policy.bits()) CHECK(bits <= policy.plan()->bits.at(seq));

  Guarded tight(compress::budget("1/8 activations", kKeep), 1e-7);
  const auto& held = *find_in<compress::BudgetPolicy>(*tight.policy);
  REQUIRE(held.plan()->mode == compress::BudgetPlan::mixed);
  for (int64_t i = 1; i <= 8; ++i) tight.step(i);
  CHECK(tight.tracking->report()->guard_limited == true);
  CHECK(held.bits() == held.plan()->bits);
}

TEST_CASE("a budget that is guarded goes on after a stop as if there was none") {
  const compress::Choice choice = compress::budget("1/3 activations", kKeep);
  Guarded p(choice, 0.5);
  std::optional<Guarded> other;
  other.emplace(choice, 0.5);
  const auto& policy = *find_in<compress::BudgetPolicy>(*p.policy);
  for (int64_t i = 1; i <= 20; ++i) {
    p.step(i);
    other->step(i);
    if (i == 9) stop_and_resume(other, choice, 0.5);
    const auto& same = *find_in<compress::BudgetPolicy>(*other->policy);
    CAPTURE(i);
    CHECK(same.bits() == policy.bits());
    CHECK(same.plan()->bits == policy.plan()->bits);
    const bool equal = other->tracking->state() == p.tracking->state();
    CHECK(equal);
  }
  CHECK(policy.bits() != policy.plan()->bits);  // the guard is at work
}
