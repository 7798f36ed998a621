// The search for the largest value that fits.
#include "train/planning/largest.h"

#include <doctest/doctest.h>

#include "tests/train/planning/planned.h"
#include "train/option_error.h"
#include "train/planning/way_steps.h"
#include "train/planning/ways.h"

namespace frugal::train {
namespace {

// Batches of ResNet-20 grow.
PlannedRun growing_run() {
  const PlannedCase net = planned_resnet();
  PlannedRun run;
  run.options = net.with(net.bits(0));
  run.growing = [meta = run.options.run](Growth growth) {
    if (growth != Growth::batch) throw OptionError("layers", "expected a run whose layers grow");
    return Growing{
        {.least = 1, .first = 8, .step = 8, .coarse = 8, .most = 4096}, 4, [meta](int64_t value) {
          return Growing::Grown{meta, value};
        }};
  };
  return run;
}

int64_t peak_with(const PlannedRun& run, const Way& way, int64_t batch) {
  MetaStep meta(run.options.run, batch);
  return meta.step(policy_on_meta(way, run.options).get(), batch, way.checkpointed_blocks).peak;
}

TEST_CASE("peaks that rise unevenly do not end the search early") {
  // As of images: a size that is no multiple of 32 takes 2/5 more, because its tensors cannot be
  // cut everywhere, and `odd` takes a tenth more than its neighbours.
  struct Row {
    int64_t own, memory, odd, wanted;
  };
  const SearchRange range{.least = 32, .first = 32, .step = 4, .coarse = 32, .most = 4088};
  for (const Row& row : {Row{224, 1000 * 1000, 0, 992},
                         {224, 1024 * 1024, 0, 1024},
                         {1020, 1024 * 1024, 0, 1024},
                         {2048, 1024 * 1024, 1024, 992},
                         {224, 1024 * 1024, 992, 1024},
                         {224, 1100 * 1100, 1024, 1088},
                         {224, 60 * 60, 0, 48},
                         {224, 60 * 60 * 7 / 5, 0, 64},
                         {224, 64 * 64, 64, 52},
                         {224, 1 << 30, 0, 4088}}) {
    CAPTURE(row.own);
    CAPTURE(row.memory);
    CAPTURE(row.odd);
    int probes = 0;
    const auto peak_of = [&](int64_t value) {
      ++probes;
      const int64_t area = value * value;
      return value % 32 != 0 ? area * 7 / 5 : value == row.odd ? area * 11 / 10 : area;
    };
    const Largest found = find_largest(range, row.own, row.memory, peak_of);
    CHECK(found.value == row.wanted);
    CHECK(found.peak == peak_of(found.value));
    CHECK(found.limited == (row.memory == 1 << 30));
    CHECK(probes <= 24);
  }
}

TEST_CASE("the largest batch fits, the next one does not, and packing makes it larger") {
  const PlannedRun run = growing_run();
  constexpr int64_t kMemory = 60 << 20;
  LargestSearch search(run, Growth::batch);
  int64_t before = 0;
  for (const int bits : {0, 2}) {
    const Way way = bits_way(run, bits);
    const Largest found = search.find(way, kMemory);
    CHECK(found.value > before);
    CHECK_FALSE(found.limited);
    CHECK(found.peak <= kMemory);
    CHECK(found.peak == peak_with(run, way, found.value));
    CHECK(peak_with(run, way, found.value + 8) > kMemory);
    before = found.value;
  }
  const Way whole = bits_way(run, 0);
  const Largest none = search.find(whole, 1 << 20);
  CHECK(none.value == 0);
  CHECK(none.peak == peak_with(run, whole, 1));
  const Largest few = search.find(whole, peak_with(run, whole, 3));
  CHECK(few.value >= 3);
  CHECK(few.value < 8);
  CHECK(search.find(whole, int64_t{1} << 50).limited);
  CHECK_THROWS_WITH_AS(LargestSearch(run, Growth::layers), doctest::Contains("layers"),
                       OptionError);
  Way budget = whole;
  budget.choice = compress::budget("1/4");
  CHECK_THROWS_WITH_AS(search.find(budget, kMemory), doctest::Contains("budget.memory"),
                       OptionError);
}

TEST_CASE("several searches share networks, and blocks are recomputed where asked for") {
  const PlannedRun run = growing_run();
  constexpr int64_t kMemory = 60 << 20;
  const Way whole = bits_way(run, 0);
  Way recomputed = whole;
  recomputed.checkpointed_blocks = kAllBlocks;
  LargestSearch search(run, Growth::batch);
  const Largest plain = search.find(whole, kMemory);
  const Largest more = search.find(recomputed, kMemory);
  CHECK(more.value > plain.value);
  CHECK(more.value == LargestSearch(run, Growth::batch).find(recomputed, kMemory).value);
  CHECK(search.find(whole, kMemory).value == plain.value);
}

}  // namespace
}  // namespace frugal::train
