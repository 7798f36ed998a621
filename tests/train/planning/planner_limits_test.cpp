// What a planner does where a budget is tight: it says what is missing, recomputes blocks, moves
// tensors to a file, or plans again.
#include <doctest/doctest.h>

#include <filesystem>

#include "tests/train/planning/planned.h"
#include "train/option_error.h"
#include "train/planning/planner.h"

using namespace frugal;
using namespace frugal::train;

namespace {

constexpr int64_t kDeepBlocks = 16;

PlannedCase limited_graph() {
  constexpr int64_t kNodes = 300, kEdges = 900, kFeatures = 24;
  Tensor edges = Tensor::empty({2, kEdges}, DType::i64);
  for (int64_t i = 0; i < edges.numel(); ++i)
    edges.mut<int64_t>()[i] =
        static_cast<int64_t>(uniform_int({0, 0}, static_cast<uint64_t>(i), kNodes));
  BatchSpec spec{{kNodes, kFeatures}, 3, BatchSpec::Kind::graph};
  spec.extras = {{"edge_index", edges}};
  return {
      "gcn", {{"width", 32}, {"in_features", kFeatures}, {"num_classes", 3}}, spec, kNodes, false};
}

std::string complaint(const PlannerOptions& options) {
  try {
    const Planner planner(options);
  } catch (const OptionError& e) {
    CHECK(e.path() == "budget.memory");
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("an infeasible budget says what is, and that is so") {
  const PlannedCase net = planned_resnet();
  const auto within = [&](int64_t bytes) { return net.within(std::to_string(bytes)); };
  const auto fits = [&](int64_t bytes) { return Planner::is_feasible(within(bytes)); };
  // The smallest feasible budget, by trying.
  int64_t too_few = 1000, least = int64_t{1} << 30;
  REQUIRE(!fits(too_few));
  REQUIRE(fits(least));
  while (least - too_few > 1) {
    const int64_t middle = too_few + (least - too_few) / 2;
    (fits(middle) ? least : too_few) = middle;
  }
  const std::string far = complaint(within(1000));
  CAPTURE(far);
  CHECK(far.find(fmt::format("at least {} bytes", least)) != std::string::npos);
  CHECK(far.find("What fits") == std::string::npos);  // parameters alone take more
  // Graph networks have no blocks to recompute.
  for (const bool recompute : {false, true}) {
    PlannerOptions graph = limited_graph().within("1000");
    graph.recompute = recompute;
    CHECK(complaint(graph).find("too few") != std::string::npos);
  }
  const Planner planner(within(least));
  CHECK(planner.planned().memory.peak + planner.reserve() <= least);
  CHECK_THROWS_AS(Planner(within(least - 1)), OptionError);

  const int64_t near = least - 100000;
  const std::string message = complaint(within(near));
  CAPTURE(message);
  CHECK(message.find(std::to_string(least)) != std::string::npos);
  CHECK(message.find("97.7 KiB too few") != std::string::npos);
  // Each way that is offered fits, and each that fits is offered. The batch is the largest.
  PlannerOptions smaller = within(near);
  while (--smaller.batch > 0 && !Planner::is_feasible(smaller)) {
  }
  REQUIRE(smaller.batch > 0);
  CHECK(message.find(fmt::format("loader.batch_size = {},", smaller.batch)) != std::string::npos);
  CHECK(Planner(smaller).planned().memory.peak < near);
  PlannerOptions recomputed = within(near), in_backward = within(near);
  recomputed.recompute = true;
  in_backward.run.in_backward = true;
  CHECK(Planner::is_feasible(recomputed) ==
        (message.find("planner.recompute") != std::string::npos));
  CHECK(Planner::is_feasible(in_backward) ==
        (message.find("trainer.in_backward") != std::string::npos));
}

TEST_CASE("blocks are recomputed where widths are poor, as few as it takes") {
  const PlannedCase deep = planned_gpt(kDeepBlocks, 32, 100);
  const auto recomputing = [&](const std::string& budget) {
    PlannerOptions options = deep.within(budget);
    options.recompute = true;
    return options;
  };
  CHECK(Planner(recomputing("1/2")).settings().checkpointed_blocks == 0);
  const PlannerOptions options = recomputing("1/5");
  const Planner planner(options), without(deep.within("1/5"));
  const int64_t blocks = planner.settings().checkpointed_blocks;
  CHECK(blocks > 0);
  CHECK(blocks < kDeepBlocks);
  CHECK(planner.planned().average_bits > 3);
  CHECK(planner.planned().average_bits > without.planned().average_bits);
  CHECK(planner.planned().variance < without.planned().variance / 4);
  const auto policy = make_policy(options.choice, kCpu, 1);
  planner.adopt(*PolicyParts(*policy).budget);
  CHECK(real_step(deep, policy.get(), blocks).memory.peak <= planner.limit());
}

TEST_CASE("tensors are moved to a file only where nothing else helps") {
  const PlannedCase net = planned_resnet();
  const auto with_file = [&](const std::string& budget) {
    PlannerOptions options = net.within(budget);
    options.choice.offload =
        compress::OffloadOptions{.directory = std::filesystem::temp_directory_path(), .window = 0};
    return options;
  };
  CHECK(Planner(with_file("1/2 activations")).planned().plan.moved == 0);
  for (const bool entropy : {false, true}) {
    PlannerOptions tiny = with_file("1/40 activations");
    tiny.choice.entropy = entropy;
    Planner moved(tiny);
    CHECK(moved.planned().plan.moved > 0);
    CHECK(moved.planned().memory.saved() <= moved.limit());
    const auto moving = make_policy(tiny.choice, kCpu, 1);
    moved.adopt(*PolicyParts(*moving).budget);
    CHECK(real_step(net, moving.get()).memory.saved() <= moved.limit());
    CHECK(PolicyParts(*moving).budget->sizes().empty() == !entropy);
  }
}

TEST_CASE("a step that took more than planned is planned again with so much less") {
  const PlannerOptions config = planned_resnet().within("1/4 activations");
  Planner planner(config);
  const auto policy = make_policy(config.choice, kCpu, 1);
  auto& budget = *PolicyParts(*policy).budget;
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
  Planner other(config);
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
