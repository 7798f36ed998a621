// Runs within a number of bytes: the allocator enforces what the plan promises.
#include <doctest/doctest.h>

#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "apps/json.h"
#include "tests/apps/run.h"
#include "train/planning/planner.h"

namespace frugal::apps {
namespace {

Json small_resnet() {
  return Json::parse(R"({
    "model": {"name": "resnet20"},
    "data": {"name": "random", "shape": [16, 16, 3], "classes": 4, "batch_size": 16,
             "test_batch_size": 16, "train_samples": 128, "test_samples": 16, "workers": 0},
    "compression": {"advanced": {"min_elements": 1024}, "gact": {"interval": 3}},
    "train": {"epochs": 1, "log_interval": 1}, "threads": 1})");
}

bool is_feasible(Json document, int64_t bytes) {
  document["compression"]["memory_budget"] = std::to_string(bytes);
  Config config = parse_config(document);
  resolve(config);
  return Planner::is_feasible(planner_options(config));
}

// A feasible budget, at most a 64th above the least.
int64_t least_budget(const Json& document) {
  int64_t too_few = 0, enough = int64_t{1} << 30;
  REQUIRE(is_feasible(document, enough));
  while (enough - too_few > enough / 64) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (is_feasible(document, middle) ? enough : too_few) = middle;
  }
  return enough;
}

std::vector<Json> plans(const std::string& metrics) {
  std::istringstream lines(read_file(metrics));
  std::vector<Json> all;
  for (std::string line; std::getline(lines, line);)
    if (Json json = Json::parse(line); json["type"] == "plan") all.push_back(std::move(json));
  return all;
}

}  // namespace

TEST_CASE("a budget of the peak holds: with a file, and while the run is watched") {
  const TempFolder folder;
  Json document = small_resnet();
  bool moves = false;
  SUBCASE("in memory") {}
  SUBCASE("watched") { document["compression"]["advanced"]["track_interval"] = 2; }
  SUBCASE("with a file") { moves = true; }
  SUBCASE("with a file, coded, and watched") {
    moves = true;
    document["compression"]["advanced"]["track_interval"] = 2;
    document["compression"]["entropy"] = true;
  }
  const int64_t in_memory = least_budget(document);
  if (moves) {
    document["compression"]["offload"] = std::filesystem::temp_directory_path().string();
    document["compression"]["advanced"]["offload_window"] = 0;
  }
  const int64_t least = least_budget(document);
  write_file(folder / "c.json", document.dump());
  for (const double more : {1.0, 1.1}) {
    const auto bytes = static_cast<int64_t>(static_cast<double>(least) * more);
    CAPTURE(bytes);
    const std::string out = folder / std::to_string(bytes);
    const Ran ran = frugal(fmt::format(
        "train {} --json --out {} --set 'compression.memory_budget=\"{} B\"' --set memory_limit={}",
        folder / "c.json", out, bytes, bytes));
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json summary = Json::parse(ran.out);
    CHECK(summary["memory"]["peak_bytes"] <= bytes);
    const std::vector<Json> seen = plans(out + "/metrics.jsonl");
    REQUIRE(seen.size() > 1);
    for (const Json& plan : seen) {
      CHECK(plan["margin_bytes"] == 0);
      CHECK(plan["feasible"] == true);
    }
    CHECK(summary.contains("offload") == moves);
    // With kernels that take much memory, the least budget may be that of a plan without a file.
    if (more == 1 && least < in_memory) CHECK(summary["offload"]["written_bytes"] > 0);
  }
}

TEST_CASE("a file lets a run go on in a quarter of its memory, to the same weights") {
  const TempFolder folder;
  Json document = small_resnet();
  document["data"]["batch_size"] = 128;
  document["data"]["shape"] = {32, 32, 3};
  document["compression"] = {{"level", "L0"}, {"recipes", false}};
  document["train"]["steps"] = 1;
  write_file(folder / "c.json", document.dump());
  const std::string train = "train " + folder / "c.json" + " --json --out ";
  const Ran whole = frugal(train + folder / "whole");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const int64_t quarter = Json::parse(whole.out)["memory"]["peak_bytes"].get<int64_t>() / 4;
  const std::string limit = " --set memory_limit=" + std::to_string(quarter);
  CHECK(frugal(train + folder / "alone" + limit).status == 1);
  const Ran moved =
      frugal(train + folder / "moved" + limit +
             " --set 'compression.advanced.offload_window=1 MiB' --set compression.offload=" +
             std::filesystem::temp_directory_path().string());
  REQUIRE_MESSAGE(moved.status == 0, moved.err);
  CHECK(Json::parse(moved.out)["memory"]["peak_bytes"] <= quarter);
  CHECK(read_file(folder / "moved/checkpoint/last.safetensors") ==
        read_file(folder / "whole/checkpoint/last.safetensors"));
}

}  // namespace frugal::apps
