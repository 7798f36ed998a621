// Runs within a number of bytes: the allocator enforces what the plan promises.
#include <doctest/doctest.h>

#include <sstream>

#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/config/train_options.h"
#include "apps/json.h"
#include "compress/policies/policy_kind.h"
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
  return Planner::is_feasible(planned_run(config).options);
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

TEST_CASE("a run within a budget stays within it, and goes on where it was") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {{"memory_budget", "1/2 activations"},
                           {"advanced", {{"min_elements", 96}}},
                           {"gact", {{"interval", 7}}}};
  int steps = 80;
  bool entropy = false;
  SUBCASE("without an entropy stage") {}
  SUBCASE("with one") {
    steps = 40;
    entropy = true;
    config["compression"]["entropy"] = true;
    config["data"]["shape"] = {16, 16, 1};
    config["model"]["hidden"] = {2048, 1024};
    config["train"]["epochs"] = 1;
  }
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + folder / "c.json" + " --json --out ";
  const Ran whole = frugal(train + folder / "a");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  // Interrupted ever later, it ends with the same bytes.
  int interrupted = 0, status = -1;
  for (double seconds = 0.02; status != 0; seconds *= 1.6) {
    REQUIRE(seconds < 600);
    status =
        shell(fmt::format("timeout -s INT {} FRUGAL {} --resume", seconds, train + folder / "b"))
            .status;
    interrupted += status != 0;
  }
  CHECK(interrupted > 0);
  const std::string last = "/checkpoint/last.safetensors";
  CHECK(read_file(folder / ("a" + last)) == read_file(folder / ("b" + last)));
  CHECK(read_file(folder / "a/metrics.jsonl") == read_file(folder / "b/metrics.jsonl"));
  int plans = 0;
  int64_t limit = 0, saved = 0;
  std::stringstream lines(read_file(folder / "a/metrics.jsonl"));
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    if (line["type"] != "plan") continue;
    ++plans;
    limit = line["limit_bytes"];
    CHECK(line["activation_bytes"] <= line["limit_bytes"]);
    CHECK(line["margin_bytes"] == 0);
    saved += line["entropy_saved_bytes"].get<int64_t>();
  }
  // More where values drifted.
  CHECK(plans >= 1 + steps / 7);
  CHECK((plans == 1 + steps / 7 || entropy));
  CHECK((saved > 0) == entropy);
  const Json memory = Json::parse(whole.out)["memory"];
  CHECK(memory["activation_bytes"] <= limit);
}

TEST_CASE("a budget that is none is an error of the configuration") {
  const auto with = [](const std::string& budget) {
    Json document = small_resnet();
    document["compression"]["memory_budget"] = budget;
    Config config = parse_config(document);
    resolve(config);
    return config;
  };
  CHECK_THROWS_AS(with("lots"), ConfigError);
  CHECK(with("1/2").compression.policy == PolicyKind::budget);
  Json alone = small_resnet();
  alone["compression"]["policy"] = "budget";  // follows from a budget, and is no value of its own
  CHECK_THROWS_AS(parse_config(alone), ConfigError);
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
