// Which preset fits.
#include "train/planning/recommend.h"

#include <doctest/doctest.h>

#include "optim/optimizers.h"
#include "tests/train/planning/planned.h"

namespace frugal::train {
namespace {

PlannedRun run_of(const PlannedCase& net, int64_t test_batch) {
  PlannedRun run;
  run.options = net.with(compress::bits(4));
  run.options.test_batch = test_batch;
  run.make_8bit_optimizer = [](Module& model) {
    return std::make_unique<optim::Sgd8bit>(model.parameters(),
                                            optim::Sgd8bitOptions{{.momentum = 0.9}});
  };
  return run;
}

Recommendation recommended(const PlannedRun& run, int64_t memory) {
  WaySteps steps(run);
  return recommend(run, memory, steps);
}

TEST_CASE("the first preset that fits is recommended, and evaluations are made to fit") {
  const PlannedCase net{"resnet20", {{"num_classes", 10}}, {{32, 32, 3}, 10}};
  const PlannedRun run = run_of(net, 256);
  const Recommendation all = recommended(run, int64_t{1} << 40);
  REQUIRE(all.rows.size() == 4);
  CHECK(all.row().preset == "lossless");
  CHECK(all.fits);
  CHECK_FALSE(all.test_batch);
  for (size_t i = 0; i + 1 < all.rows.size(); ++i) {
    CHECK(all.rows[i].activations > all.rows[i + 1].activations);
    CHECK(all.rows[i].peak >= all.rows[i + 1].peak);
  }
  const Recommendation less = recommended(run, all.rows[0].peak - 1);
  CHECK(less.row().preset == "safe");
  CHECK(less.fits);
  const Recommendation tight = recommended(run, all.rows[1].peak);
  CHECK(tight.row().preset == "safe");
  REQUIRE(tight.test_batch);
  CHECK(*tight.test_batch < 256);
  const Recommendation none = recommended(run, 1 << 20);
  CHECK_FALSE(none.fits);
  CHECK(none.rows.size() == 20);
  CHECK(free_memory() > 0);
  CHECK(free_for_tensors() > 0);
  CHECK(free_for_tensors() < free_memory());
}

TEST_CASE("where no preset fits, updates in the backward pass and an 8-bit optimizer are tried") {
  const PlannedCase net{"resnet18", {{"num_classes", 10}, {"stem", "cifar"}}, {{32, 32, 3}, 10}, 2};
  const PlannedRun run = run_of(net, 2);
  const Recommendation none = recommended(run, 1 << 20);
  const auto peak_of = [&](const Savings& with) {
    for (const auto& row : none.rows)
      if (row.preset == "lossless" && row.with == with) return row.peak;
    return int64_t{-1};
  };
  const Savings in_backward{.in_backward = true};
  const int64_t whole = peak_of({}), less = peak_of(in_backward),
                least = peak_of({.in_backward = true, .in_8bit = true});
  CHECK(less < whole);
  CHECK(least < less);
  // By default a run does so itself.
  PlannedRun usual = run;
  usual.options.run.in_backward.reset();
  const Recommendation own = recommended(usual, 1 << 20);
  CHECK(own.rows[0].peak == less);
  for (const auto& row : own.rows) CHECK_FALSE(row.with.in_backward);
  // These are the peaks of a run that does so.
  PlannedRun both = run;
  both.options.run.in_backward = true;
  both.options.run.make_optimizer = std::exchange(both.make_8bit_optimizer, nullptr);
  CHECK(recommended(both, int64_t{1} << 40).rows[0].peak == least);
  const Recommendation found = recommended(run, less);
  CHECK(found.fits);
  CHECK(found.row().with == in_backward);
  // Gradients that are clipped are needed together, and not each optimizer has a form of 8 bits.
  PlannedRun clipped = run;
  clipped.options.run.clip_norm = 1;
  clipped.make_8bit_optimizer = {};
  for (const auto& row : recommended(clipped, 1 << 20).rows)
    CHECK((row.with == Savings() || row.with == Savings{.recomputed = true}));
}

TEST_CASE("the plan of a budget fits, or one for the memory does, or none") {
  const PlannedCase net = planned_resnet();
  PlannedRun run = run_of(net, 32);
  run.options = net.within("8 MiB");
  const Planner plan(run.options);
  const Recommendation fits = recommend(run, int64_t{1} << 30, plan);
  CHECK(fits.fits);
  CHECK(fits.rows.size() == 1);
  CHECK_FALSE(fits.row().changes());
  const Recommendation less = recommend(run, 6 << 20, plan);
  CHECK(less.fits);
  CHECK(less.row().budget == 6 << 20);
  CHECK(less.row().peak <= 6 << 20);
  const Recommendation none = recommend(run, 1 << 20, plan);
  CHECK_FALSE(none.fits);
  CHECK(none.rows.size() == 1);
}

}  // namespace
}  // namespace frugal::train
