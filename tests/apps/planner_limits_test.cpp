// What a planner does where a budget is tight: it says what is missing, recomputes blocks, moves
// tensors to a file, or plans again.
#include <doctest/doctest.h>

#include <filesystem>

#include "apps/config/make_choice.h"
#include "apps/config/train_options.h"
#include "tests/apps/find_in.h"
#include "tests/apps/planned.h"

using namespace frugal;
using namespace frugal::apps;
using compress::BudgetPolicy;

namespace {

constexpr int64_t kDeepBlocks = 16;
constexpr const char* kDeep = R"({
  "model": {"name": "gpt2", "layers": 16, "width": 32, "heads": 2, "vocab_size": 100},
  "data": {"name": "random_tokens", "batch_size": 16, "max_length": 64, "train_samples": 64,
           "test_samples": 16, "workers": 0},
  "compression": {"advanced": {"min_elements": 1024}}})";
constexpr const char* kLimitedGraph = R"({
  "model": {"name": "gcn", "width": 32},
  "data": {"name": "random_graph", "nodes": 300, "edges": 900, "features": 24, "classes": 3}})";

}  // namespace

TEST_CASE("an infeasible budget says what is, and that is so") {
  auto complaint = [](const Config& config) -> std::string {
    try {
      const Planner planner(planner_options(config));
    } catch (const ConfigError& e) {
      CHECK(e.path() == "compression.memory_budget");
      return e.what();
    }
    return "";
  };
  auto fits = [](int64_t bytes, const std::vector<std::string>& sets = {}) {
    return Planner::is_feasible(planner_options(config_of(kResNet, std::to_string(bytes), sets)));
  };
  // The smallest feasible budget, by trying.
  int64_t too_few = 1000, least = int64_t{1} << 30;
  REQUIRE(!fits(too_few));
  REQUIRE(fits(least));
  while (least - too_few > 1) {
    const int64_t middle = too_few + (least - too_few) / 2;
    (fits(middle) ? least : too_few) = middle;
  }
  const std::string far = complaint(config_of(kResNet, "1000"));
  CAPTURE(far);
  CHECK(far.find(fmt::format("at least {} bytes", least)) != std::string::npos);
  CHECK(far.find("What fits") == std::string::npos);  // parameters alone take more
  // Graph networks have no blocks to recompute.
  for (const char* set :
       {"compression.budget.recompute=false", "compression.budget.recompute=true"})
    CHECK(complaint(config_of(kLimitedGraph, "1000", {set})).find("too few") != std::string::npos);
  const Planner planner(planner_options(config_of(kResNet, std::to_string(least))));
  CHECK(planner.planned().memory.peak + planner.reserve() <= least);
  CHECK_THROWS_AS(Planner(planner_options(config_of(kResNet, std::to_string(least - 1)))),
                  ConfigError);

  const int64_t near = least - 100000;
  const std::string message = complaint(config_of(kResNet, std::to_string(near)));
  CAPTURE(message);
  CHECK(message.find(std::to_string(least)) != std::string::npos);
  CHECK(message.find("97.7 KiB too few") != std::string::npos);
  // Each way that is offered fits, and each that fits is offered. The batch is the largest.
  auto batch_of = [](int64_t samples) { return fmt::format("data.batch_size={}", samples); };
  int64_t batch = 31;  // the configuration's is 32
  while (batch > 0 && !fits(near, {batch_of(batch)})) --batch;
  REQUIRE(batch > 0);
  CHECK(message.find(fmt::format("data.batch_size = {},", batch)) != std::string::npos);
  const Planner smaller(
      planner_options(config_of(kResNet, std::to_string(near), {batch_of(batch)})));
  CHECK(smaller.planned().memory.peak < near);
  for (const char* way : {"compression.budget.recompute", "optim.in_backward"})
    CHECK(fits(near, {std::string(way) + "=true"}) == (message.find(way) != std::string::npos));
}

TEST_CASE("blocks are recomputed where widths are poor, as few as it takes") {
  const std::vector<std::string> set{"compression.budget.recompute=true"};
  const auto blocks_at = [&](const std::string& budget) {
    const Config config = config_of(kDeep, budget, set);
    return Planner(planner_options(config)).settings().checkpointed_blocks;
  };
  CHECK(blocks_at("1/2") == 0);
  Config config = config_of(kDeep, "1/5", set);
  const Planner planner(planner_options(config)), without(planner_options(config_of(kDeep, "1/5")));
  const int64_t blocks = planner.settings().checkpointed_blocks;
  CHECK(blocks > 0);
  CHECK(blocks < kDeepBlocks);
  CHECK(planner.planned().average_bits > 3);
  CHECK(planner.planned().average_bits > without.planned().average_bits);
  CHECK(planner.planned().variance < without.planned().variance / 4);
  const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
  planner.adopt(*find_in<BudgetPolicy>(*policy));
  config.train.checkpointing = true;
  config.train.checkpointed_blocks = blocks;
  CHECK(real_step(config, policy.get()).memory.peak <= planner.limit());
}

TEST_CASE("tensors are moved to a file only where nothing else helps") {
  const std::vector<std::string> file{
      "compression.offload=" + std::filesystem::temp_directory_path().string(),
      "compression.advanced.offload_window=0"};
  Planner room(planner_options(config_of(kResNet, "1/2 activations", file)));
  CHECK(room.planned().plan.moved == 0);
  for (const char* entropy : {"compression.entropy=false", "compression.entropy=true"}) {
    std::vector<std::string> sets = file;
    sets.emplace_back(entropy);
    const Config tiny = config_of(kResNet, "1/40 activations", sets);
    Planner moved(planner_options(tiny));
    CHECK(moved.planned().plan.moved > 0);
    CHECK(moved.planned().memory.saved() <= moved.limit());
    const auto moving = make_policy(make_choice(tiny.compression), kCpu, 1);
    moved.adopt(*find_in<BudgetPolicy>(*moving));
    CHECK(real_step(tiny, moving.get()).memory.saved() <= moved.limit());
    CHECK(find_in<BudgetPolicy>(*moving)->sizes().empty() == !tiny.compression.entropy);
  }
}

TEST_CASE("a step that took more than planned is planned again with so much less") {
  const Config config = config_of(kResNet, "1/4 activations");
  Planner planner(planner_options(config));
  const auto policy = make_policy(make_choice(config.compression), kCpu, 1);
  auto& budget = *find_in<BudgetPolicy>(*policy);
  planner.adopt(budget);
  StepMemory taken = planner.planned().memory;
  CHECK(!planner.observe(taken, budget));
  taken.packed += 10000 + planner.limit() - taken.saved();
  const int64_t more = taken.saved() - planner.planned().memory.saved();
  CHECK(planner.observe(taken, budget));
  CHECK(planner.planned().memory.saved() <= planner.limit() - more);
  CHECK(budget.plan()->margin == more);
  CHECK(budget.plan()->bits == planner.planned().plan.bits);
  // Another planner goes on from what a checkpoint keeps.
  Planner other(planner_options(config));
  other.resume(planner.state(), budget);
  CHECK(other.planned().memory.saved() == planner.planned().memory.saved());
  CHECK(other.report() == planner.report());
  CHECK(!other.observe(planner.planned().memory, budget));
  // One that has no plan within the budget any more does not look for one at each step.
  Planner::State state = planner.state();
  state.feasible = false;
  state.margin = planner.limit();
  other.resume(state, budget);
  CHECK(!other.observe(taken, budget));
  CHECK(!other.report().feasible);
  state.margin = -1;
  CHECK_THROWS_AS(other.resume(state, budget), Error);
}
