// Runs that evaluate averages of their weights: which file holds what was judged.
#include <doctest/doctest.h>

#include <filesystem>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Json judged(const std::string& config, const std::string& weights) {
  const Ran ran = frugal("eval " + config + " --json --checkpoint " + weights);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

std::string weights_of(const std::string& path) {
  return data::SafetensorsFile::open(path).metadata().at("weights");
}

}  // namespace

TEST_CASE(
    "with averages, a file holds what `final` was measured on, and resumed runs write it too") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string config = folder / "c.json", run = folder / "run";
  const std::string train =
      "train " + config + " --json --set optim.ema=0.98 --set optim.lr=0.3 --out ";
  const Ran ran = frugal(train + run);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json summary = Json::parse(ran.out);
  const std::string last = run + "/checkpoint/last.safetensors",
                    average = run + "/checkpoint/last_average.safetensors",
                    best = run + "/checkpoint/best.safetensors";
  CHECK(judged(config, average)["loss"] == summary["final"]["test_loss"]);
  CHECK(judged(config, average)["accuracy"] == summary["final"]["test_accuracy"]);
  CHECK(judged(config, best)["loss"] == summary["best"]["test_loss"]);
  CHECK(judged(config, last)["loss"] != summary["final"]["test_loss"]);
  CHECK(summary["final"]["weights"] == "last_average.safetensors");
  CHECK(weights_of(last) == "as trained");
  CHECK(weights_of(average) == "averages of optim.ema");
  CHECK(weights_of(best) == "averages of optim.ema");

  const std::string before = read_file(average);
  std::filesystem::remove(average);
  REQUIRE(frugal(train + run + " --resume").status == 0);
  CHECK((read_file(average) == before));
}

TEST_CASE("without averages there is no file of them") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const Ran ran = frugal("train " + folder / "c.json" + " --json --out " + folder / "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(!std::filesystem::exists(folder / "run/checkpoint/last_average.safetensors"));
  CHECK(!Json::parse(ran.out)["final"].contains("weights"));
  CHECK(weights_of(folder / "run/checkpoint/best.safetensors") == "as trained");
}

TEST_CASE("a run that loses patience stops at an epoch that was evaluated") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "gcn", "layers": 2, "width": 8},
    "data": {"name": "random_graph", "nodes": 60, "edges": 200, "features": 8, "classes": 3,
             "split": [0.5, 0.2]},
    "optim": {"lr": 2.0}, "train": {"epochs": 90, "patience": 1, "eval_interval": 4},
    "threads": 1})");
  const Ran ran = frugal("train " + folder / "c.json" + " --json --out " + folder / "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json summary = Json::parse(ran.out);
  REQUIRE(summary["steps"] < 90);
  CHECK(summary["steps"] == summary["epochs"]);  // full batches; `epochs` is the last evaluated one
  CHECK(judged(folder / "c.json", folder / "run/checkpoint/last.safetensors")["loss"] ==
        summary["final"]["test_loss"]);
}

}  // namespace frugal::apps
