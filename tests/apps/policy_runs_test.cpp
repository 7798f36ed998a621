// Runs under policies that learn: their bits do not depend on threads, nor on being interrupted.
#include <doctest/doctest.h>

#include <csignal>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Json tiny() {
  Json config = Json::parse(kTinyConfig);
  config["train"] = {{"epochs", 1}, {"log_interval", 1}, {"checkpoint_interval", 2}};
  config["compression"] = {{"advanced", {{"min_elements", 96}}}};
  return config;
}

// results: only the results in the metrics are compared, because the runs had different numbers of
// threads.
void check_equal(const std::string& a, const std::string& b, bool results = false) {
  for (const char* name :
       {"/metrics.jsonl", "/checkpoint/last.safetensors", "/checkpoint/best.safetensors"}) {
    CAPTURE(std::string(name));
    const bool part = results && std::string(name) == "/metrics.jsonl";
    const std::string x = part ? results_in(a + name) : read_file(a + name);
    const std::string y = part ? results_in(b + name) : read_file(b + name);
    CHECK(!x.empty());
    CHECK((x == y));
  }
}

const std::string kStochastic =
    "--set compression.policy=acgc --set compression.acgc.interval=4 "
    "--set compression.acgc.count=expected --set compression.advanced.rounding=stochastic ";

}  // namespace

TEST_CASE("runs within error bounds or a budget do not depend on threads") {
  if (!products_ignore_threads()) {
    MESSAGE("left out: on this processor products of matrices depend on the number of threads");
    return;
  }
  std::string keep;
  SUBCASE("bounds, to nearest") {
    keep =
        "--set compression.policy=acgc --set compression.acgc.interval=4 "
        "--set compression.advanced.rounding=nearest --set compression.acgc.codec=entropy";
  }
  SUBCASE("expected errors") { keep = kStochastic; }
  SUBCASE("a budget") {
    keep =
        "--set 'compression.memory_budget=\"1/6 activations\"' --set compression.gact.interval=4";
  }
  SUBCASE("a budget, entropy coded") {
    keep =
        "--set 'compression.memory_budget=\"1/6 activations\"' --set compression.gact.interval=4 "
        "--set compression.entropy=true";
  }
  SUBCASE("a budget, coded and moved to a file") {
    keep =
        "--set 'compression.memory_budget=\"1/30 activations\"' --set compression.gact.interval=4 "
        "--set compression.entropy=true --set compression.advanced.offload_window=0 --set "
        "compression.offload=" +
        std::filesystem::temp_directory_path().string();
  }
  CAPTURE(keep);
  const TempFolder folder;
  Json config = tiny();
  // Large enough for several threads to have work.
  config["model"]["hidden"] = {512, 256};
  config["data"]["batch_size"] = 128;
  config["data"]["shape"] = {16, 16, 1};
  write_file(folder / "c.json", config.dump());
  const std::string train = fmt::format("train {} {}", folder / "c.json", keep);
  const Ran one = frugal(train + " --out " + folder / "1");
  REQUIRE_MESSAGE(one.status == 0, one.err);
  REQUIRE(frugal(train + " --out " + folder / "3" + " --set threads=3").status == 0);
  check_equal(folder / "1", folder / "3", true);
  // The policy is in these bits.
  static const std::string raw = [&] {  // one for all policies
    REQUIRE(
        frugal("train " + folder / "c.json" + " --set compression.level=L0 --out " + folder / "raw")
            .status == 0);
    return read_file(folder / "raw/checkpoint/last.safetensors");
  }();
  CHECK(raw != read_file(folder / "1/checkpoint/last.safetensors"));
}

TEST_CASE("a run within error bounds that is ended or killed goes on to the same bits") {
  std::string keep = kStochastic;
  SUBCASE("expected errors") {}
  SUBCASE("bounds, coded by their entropy") {
    keep =
        "--set compression.policy=acgc --set compression.acgc.interval=4 "
        "--set compression.advanced.rounding=nearest --set compression.acgc.codec=entropy";
  }
  CAPTURE(keep);
  const TempFolder folder;
  Json config = tiny();
  config["model"] = {{"name", "resnet20"}, {"layers", 8}};
  config["data"]["shape"] = {8, 8, 3};
  config["data"]["train_samples"] = 768;
  write_file(folder / "c.json", config.dump());
  const std::string train = fmt::format("train {} {} --resume", folder / "c.json", keep);
  const Ran whole = frugal(train + " --out " + folder / "whole");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  for (const int signal : {SIGKILL, SIGTERM, SIGKILL}) {
    std::error_code none;  // later cuts come when there is more than before
    uintmax_t bytes = std::filesystem::file_size(folder / "cut/metrics.jsonl", none);
    if (none) bytes = std::filesystem::file_size(folder / "whole/metrics.jsonl") / 4;
    CHECK(cut_run(train, folder / "cut", "metrics.jsonl", bytes, signal) == 128 + signal);
    CHECK(!std::filesystem::exists(folder / "cut/summary.json"));
  }
  REQUIRE(frugal(train + " --out " + folder / "cut").status == 0);
  check_equal(folder / "whole", folder / "cut");
}

}  // namespace frugal::apps
