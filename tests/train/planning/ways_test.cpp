// Ways to keep activations, side by side.
#include "train/planning/ways.h"

#include <doctest/doctest.h>

#include "tests/train/planning/planned.h"
#include "train/planning/way_steps.h"

namespace frugal::train {
namespace {

PlannedRun resnet_run(const compress::Choice& choice) {
  PlannedRun run;
  run.options = planned_resnet().with(choice);
  return run;
}

const WayMemory& row_of(const std::vector<WayMemory>& rows, const std::string& name) {
  for (const WayMemory& row : rows)
    if (row.way.name == name) return row;
  throw Error("no row " + name);
}

std::vector<WayMemory> rows_of(const PlannedRun& run) {
  WaySteps steps(run);
  return memory_of_ways(run, steps);
}

TEST_CASE("ways side by side: fewer bits save less, and what costs time is idle or takes less") {
  const std::vector<WayMemory> rows = rows_of(resnet_run(compress::bits(4)));
  CHECK(rows.front().way.kind == Way::own);
  const auto saved = [&](const char* name) { return row_of(rows, name).memory.saved(); };
  CHECK(rows.front().memory.saved() == saved("4 bits"));
  CHECK(saved("whole") > saved("lossless"));
  CHECK(saved("8 bits") > saved("4 bits"));
  CHECK(saved("4 bits") > saved("3 bits"));
  CHECK(saved("3 bits") > saved("2 bits"));
  CHECK(saved("whole") > saved("whole, recomputed"));
  CHECK(saved("4 bits") == saved("safe"));
  for (const WayMemory& row : rows) {
    CAPTURE(row.way.name);
    CHECK(row.why.empty());
    if (!row.way.without.empty())
      CHECK(row.idle == (row.memory.peak >= row_of(rows, row.way.without).memory.peak));
    if (row.way.choice.offload) CHECK(row.way.choice.offload->window >= 1 << 20);
  }
}

TEST_CASE("a way that the run cannot have says why") {
  PlannedRun run = resnet_run(compress::bits(4));
  run.options.run.in_backward = true;
  int impossible = 0;
  for (const WayMemory& row : rows_of(run)) {
    const bool recomputed = row.way.name.find("recomputed") != std::string::npos;
    CHECK(row.why.empty() == !recomputed);
    impossible += recomputed ? 1 : 0;
  }
  CHECK(impossible == 3);
  run.complete = [](Way& way) {
    if (way.name == "small") throw Error("not here");
  };
  CHECK(row_of(rows_of(run), "small").why == "not here");
}

TEST_CASE("rows follow the run: its policy's levels, its folder, and no own row with a budget") {
  const auto has = [](const std::vector<Way>& all, const std::string& name) {
    return std::any_of(all.begin(), all.end(), [&](const Way& way) { return way.name == name; });
  };
  CHECK(has(ways(resnet_run({.policy = compress::ActnnOptions{}})), "actnn L3"));
  CHECK(has(ways(resnet_run({.policy = compress::AcgcOptions{}})), "acgc, e = 0.25"));
  const PlannedRun plain = resnet_run(compress::bits(4));
  CHECK_FALSE(has(ways(plain), "actnn L3"));
  compress::Choice moved = compress::bits(4);
  moved.offload = compress::OffloadOptions{.directory = "/somewhere", .window = 7};
  const Way last = ways(resnet_run(moved)).back();
  CHECK(last.choice.offload->directory == "/somewhere");
  CHECK(last.choice.offload->window == 7);
  CHECK_FALSE(last.chooses_window);
  CHECK(ways(plain).back().chooses_window);
  CHECK(rows_of(resnet_run(compress::budget("1/2"))).front().way.kind == Way::bits);
}

}  // namespace
}  // namespace frugal::train
