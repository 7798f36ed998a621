// The guard over every policy: it raises what is too coarse and lowers what is too fine.
#include <doctest/doctest.h>

#include <cmath>

#include "apps/config/config_error.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "tests/apps/find_in.h"
#include "tests/apps/run.h"
#include "tests/train/task_of.h"
#include "train/convergence.h"
#include "train/planning/planner.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

// A small network on noise whose weights hardly move.
struct Guarded {
  Config config;
  std::shared_ptr<Module> model;
  std::unique_ptr<data::BatchSource> loader;
  std::unique_ptr<SavePolicy> policy;
  std::optional<Planner> planner;
  std::optional<Tracking> tracking;

  explicit Guarded(const std::string& compression) {
    config = parse_config(Json::parse(
        R"({"model": {"name": "mlp", "hidden": [128, 64]}, "data": {"name": "random",
            "shape": [8, 8, 3], "classes": 4, "batch_size": 64, "train_samples": 2048,
            "workers": 0}, "compression": )" +
        compression + "}"));
    config.compression.min_elements = 4095;
    resolve(config);
    model = make_model(config, {{8, 8, 3}, 0}, kCpu);
    loader = make_batches(config, Split::train);
    policy = make_policy(make_choice(config.compression), kCpu, 0);
    if (config.compression.policy == PolicyKind::budget) {
      planner.emplace(planner_options(config));
      planner->adopt(*find_in<compress::BudgetPolicy>(*policy));
    }
    tracking.emplace(classification(), *model, *policy, tracking_options(config).value());
  }
  void step(int64_t number) {
    std::optional<Batch> batch = loader->next();
    if (!batch) batch = loader->next();
    model->zero_grad();
    if (number > 3) tracking->before(*batch, number);
    Rng rng;
    Context context;
    context.rng = &rng;
    begin_step(static_cast<uint64_t>(number));
    forward_backward(classification(), *model, *batch, context, policy.get(), {});
    tracking->stepped(1e-4, 1);
    if (number > 3) tracking->after(number);
  }
};

// As a run does that goes on from its checkpoint.
void stop_and_resume(std::optional<Guarded>& p, const char* compression) {
  const std::vector<double> state = p->tracking->state();
  const compress::Learned learned = find_in<compress::Learner>(*p->policy)->learned();
  const data::LoaderState at = p->loader->state();
  const auto* adaptive = find_in<compress::AdaptivePolicy>(*p->policy);
  const auto widths = adaptive != nullptr ? std::optional(adaptive->state()) : std::nullopt;
  const auto planned = p->planner ? std::optional(p->planner->state()) : std::nullopt;
  p.emplace(compression);
  p->loader->seek(at);
  p->tracking->restore(state);
  if (widths) find_in<compress::AdaptivePolicy>(*p->policy)->restore(*widths);
  find_in<compress::Learner>(*p->policy)->restore_learned(learned);
  if (planned) p->planner->resume(*planned, *find_in<compress::BudgetPolicy>(*p->policy));
}

}  // namespace

TEST_CASE("the guard steers ActNN's average and AC-GC's growth, and goes on after a stop") {
  struct Row {
    const char* compression;
    bool rises;
  };
  for (
      const Row& row :
      {Row{R"({"policy": "actnn", "level": "L3", "bits": 1, "recipes": false, "guard": 0.02, "actnn": {"interval": 4}})",
           true},
       Row{R"({"policy": "actnn", "level": "L3", "bits": 8, "guard": 0.02})", false},
       Row{R"({"policy": "acgc", "guard": 0.02, "acgc": {"growth": 0.001, "count": "expected", "interval": 4}})",
           false}}) {
    CAPTURE(row.compression);
    Guarded p(row.compression);
    const double start = p.tracking->state()[0];
    std::optional<Guarded> other(row.compression);
    for (int64_t i = 1; i <= 24; ++i) {
      p.step(i);
      other->step(i);
      if (i == 9) stop_and_resume(other, row.compression);
    }
    const Convergence found = p.tracking->report().value();
    CAPTURE(found.added_share);
    CHECK(found.guard_limited == false);
    CHECK((found.next_bits.value() > start) == row.rises);
    CHECK(found.next_bits != start);
    CHECK(other->tracking->state() == p.tracking->state());
  }
}

TEST_CASE(
    "a budget takes less than it has where that adds little, and says where it forbids more") {
  Guarded roomy(R"({"memory_budget": "1/3 activations", "guard": 0.5})");
  auto& policy = *find_in<compress::BudgetPolicy>(*roomy.policy);
  REQUIRE(policy.plan()->mode == compress::BudgetPlan::mixed);
  const double start = policy.fineness();
  for (int64_t i = 1; i <= 16; ++i) roomy.step(i);
  CHECK(roomy.tracking->report()->next_bits.value() < start);
  CHECK(policy.bits() != policy.plan()->bits);
  for (const auto& [seq, bits] : policy.bits()) CHECK(bits <= policy.plan()->bits.at(seq));

  Guarded tight(R"({"memory_budget": "1/8 activations", "guard": 1e-7})");
  const auto& held = *find_in<compress::BudgetPolicy>(*tight.policy);
  REQUIRE(held.plan()->mode == compress::BudgetPlan::mixed);
  for (int64_t i = 1; i <= 8; ++i) tight.step(i);
  CHECK(tight.tracking->report()->guard_limited == true);
  CHECK(held.bits() == held.plan()->bits);
}

TEST_CASE("a budget that is guarded goes on after a stop as if there was none") {
  const char* compression = R"({"memory_budget": "1/3 activations", "guard": 0.5})";
  Guarded p(compression);
  std::optional<Guarded> other(compression);
  const auto& policy = *find_in<compress::BudgetPolicy>(*p.policy);
  for (int64_t i = 1; i <= 20; ++i) {
    p.step(i);
    other->step(i);
    if (i == 9) stop_and_resume(other, compression);
    const auto& same = *find_in<compress::BudgetPolicy>(*other->policy);
    CAPTURE(i);
    CHECK(same.bits() == policy.bits());
    CHECK(same.plan()->bits == policy.plan()->bits);
    const bool equal = other->tracking->state() == p.tracking->state();
    CHECK(equal);
  }
  CHECK(policy.bits() != policy.plan()->bits);  // the guard is at work
}

TEST_CASE("rounding is dithered unless that cannot be, or would bound unpacking") {
  const auto rounding = [](const char* json) {
    Config config = parse_config(Json::parse(json));
    resolve(config);
    const auto policy = make_policy(make_choice(config.compression), kCpu, 0);
    return find_in<compress::FixedPolicy>(*policy)->codec().options().rounding;
  };
  CHECK(rounding("{}") == compress::Rounding::dithered);
  CHECK(rounding(R"({"compression": {"advanced": {"rounding": "stochastic"}}})") ==
        compress::Rounding::stochastic);
  CHECK(rounding(R"({"device": "cuda"})") == compress::Rounding::stochastic);
  CHECK(rounding(R"({"device": "meta"})") == compress::Rounding::dithered);
  Config acgc = parse_config(Json::parse(R"({"compression": {"policy": "acgc"}})"));
  CHECK_NOTHROW(make_policy(make_choice(acgc.compression), kCpu, 0));
}

TEST_CASE("dithered rounding comes from the configuration, and AC-GC refuses it") {
  Config config =
      parse_config(Json::parse(R"({"compression": {"advanced": {"rounding": "dithered"}}})"));
  const auto policy = make_policy(make_choice(config.compression), kCpu, 0);
  const auto* fixed = find_in<compress::FixedPolicy>(*policy);
  REQUIRE(fixed != nullptr);
  CHECK(fixed->codec().options().rounding == compress::Rounding::dithered);
  config.compression.policy = PolicyKind::acgc;
  CHECK_THROWS_WITH_AS(make_policy(make_choice(config.compression), kCpu, 0),
                       "compression.advanced.rounding: expected stochastic or nearest with policy "
                       "acgc, got dithered",
                       ConfigError);
}
