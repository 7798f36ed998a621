// train.metric: what evaluations measure, and what the best epoch is chosen by.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

struct Measured {
  TempFolder folder;
  std::string config = folder / "c.json";

  // Trains into the folder `name`.
  Ran train(const std::string& name, const std::string& sets) const {
    return frugal("train " + config + " --out " + (folder / name) + " " + sets);
  }
  Json file(const std::string& name, const std::string& which) const {
    return Json::parse(read_file(folder / (name + "/" + which)));
  }
  // The first of the epochs that are best by the metric, of the validation set where there is one,
  // and what the test set has there.
  struct Best {
    double judged = 0, test = 0;
    int64_t epoch = 0;
  };
  Best best_of(const std::string& metric, bool higher) const {
    Best best;
    std::stringstream lines(read_file(folder / (metric + "/metrics.jsonl")));
    for (std::string line; std::getline(lines, line);) {
      const Json entry = Json::parse(line);
      if (entry["type"] != "epoch") continue;
      const auto test = entry.at("test_" + metric).get<double>();
      const auto judged =
          entry.contains("validation") ? entry["validation"].at(metric).get<double>() : test;
      if (best.epoch == 0 || (higher ? judged > best.judged : judged < best.judged))
        best = {judged, test, entry["epoch"].get<int64_t>()};
    }
    return best;
  }
  // Trains with the metric, and compares what a run tells of it.
  void check(const std::string& metric, bool higher, const std::string& sets = "") const {
    CAPTURE(metric);
    const Ran ran = train(metric, sets + " --set train.metric=" + metric);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    CHECK(has(ran.out, "best test " + metric));
    const Json summary = file(metric, "summary.json");
    const Best best = best_of(metric, higher);
    CHECK(summary["best"]["test_" + metric] == best.test);
    CHECK(summary["best"]["epoch"] == best.epoch);
    const Ran eval = frugal("eval " + (folder / metric) + " --weights best --json");
    REQUIRE_MESSAGE(eval.status == 0, eval.err);
    CHECK(Json::parse(eval.out).at(metric) == best.test);
    CHECK(has(frugal("eval " + (folder / metric)).out, "  " + metric + " "));
  }
};

TEST_CASE_FIXTURE(Measured, "train.metric: other measures of classes, and the accuracy alone") {
  write_file(config, kTinyConfig);
  for (const char* metric : {"f1", "macro_f1", "micro_f1", "matthews"}) check(metric, true);
  check("perplexity", false);
  CHECK(file("micro_f1", "input.json")["target"] == "class_of_sample");
  // What a run folder holds by default is what earlier versions wrote.
  REQUIRE(train("auto", "").status == 0);
  REQUIRE(train("accuracy", "--set train.metric=accuracy").status == 0);
  CHECK(read_file(folder / "auto/input.json") == read_file(folder / "accuracy/input.json"));
  CHECK_FALSE(file("auto", "input.json").contains("target"));
  CHECK(file("auto", "summary.json")["best"] == file("accuracy", "summary.json")["best"]);
  // Weights do not depend on what is measured.
  CHECK(read_file(folder / "auto/checkpoint/last.safetensors") ==
        read_file(folder / "f1/checkpoint/last.safetensors"));
  const Ran more = train("more", "--set train.metric=f1 --set model.num_classes=4");
  CHECK(more.status == 2);
  CHECK(
      has(more.err, "model.num_classes: expected 3, the classes of random, with train.metric f1"));
  // A run is evaluated by another metric than it was trained by.
  const Ran other = frugal("eval " + (folder / "auto") + " --set train.metric=matthews");
  CHECK_MESSAGE(other.status == 0, other.err);
  CHECK(has(other.out, "  matthews "));
}

TEST_CASE_FIXTURE(Measured, "train.metric: errors of values, and a run that is read again") {
  std::filesystem::create_directories(folder / "data");
  std::string rows = "size,weight\n";
  for (int i = 0; i < 120; ++i) rows += fmt::format("{},{:.1f}\n", i % 17, 0.3 + 2.5 * (i % 17));
  write_file(folder / "data/train.csv", rows);
  write_file(config, R"({"model": {"name": "mlp", "hidden": [8]},
                         "data": {"name": "csv", "target": "weight", "batch_size": 16, "dir": ")" +
                         (folder / "data") + R"("},
                         "optim": {"name": "adamw", "lr": 0.02}, "schedule": {"name": "constant"},
                         "train": {"epochs": 4}, "threads": 1})");
  check("mse", false);
  check("mae", false);
  CHECK(file("mae", "input.json")["target"] == "values");
  write_file(folder / "rows.csv", "size\n4\n");
  const Ran predicted =
      frugal("predict " + (folder / "mae") + " " + (folder / "rows.csv") + " --json");
  REQUIRE_MESSAGE(predicted.status == 0, predicted.err);
  CHECK(Json::parse(predicted.out).contains("values"));
  REQUIRE(train("auto", "").status == 0);
  CHECK(file("auto", "summary.json")["final"].contains("test_r2"));
  CHECK_FALSE(file("auto", "input.json").contains("target"));
  const Ran accuracy = train("none", "--set train.metric=accuracy");
  CHECK(accuracy.status == 2);
  CHECK(has(accuracy.err, "train.metric: expected auto or one of r2, mse and mae for csv"));
  // A kind of target that no version knows.
  Json input = file("mae", "input.json");
  input["target"] = "smells";
  write_file(folder / "mae/input.json", input.dump());
  const Ran damaged = frugal("predict " + (folder / "mae") + " " + (folder / "rows.csv"));
  CHECK(damaged.status != 0);
  CHECK(has(damaged.err, "expected a kind of target"));
}

TEST_CASE_FIXTURE(Measured, "train.metric: dice of pixels, and early stopping by it") {
  write_file(config, R"({
    "model": {"name": "unet", "width": 8},
    "data": {"name": "random_masks", "shape": [32, 32, 3], "classes": 3, "batch_size": 4,
             "train_samples": 12, "test_samples": 4},
    "optim": {"name": "adamw", "lr": 0.01}, "schedule": {"name": "constant"},
    "train": {"epochs": 3}, "threads": 1})");
  check("dice", true, "--set train.early_stop.patience=3 --set train.early_stop.metric=metric");
  const Json details = Json::parse(frugal("eval " + (folder / "dice") + " --json").out)["details"];
  CHECK(details.contains("miou"));
  CHECK(details.contains("iou.0"));
  // What the data usually have counts pairs, too. An evaluation would end the run after an epoch.
  const Ran more = train("more", "--set model.num_classes=20");
  CHECK(more.status == 2);
  CHECK(has(more.err,
            "model.num_classes: expected 3, the classes of random_masks, with train.metric miou, "
            "got 20"));
  CHECK_FALSE(std::filesystem::exists(folder / "more"));
  REQUIRE(train("more", "--set model.num_classes=20 --set train.metric=accuracy").status == 0);
}

TEST_CASE_FIXTURE(Measured, "train.metric: the best epoch of a text is that of the perplexity") {
  std::filesystem::create_directories(folder / "data");
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("{} is {}. ", i % 13, i * i % 7);
  write_file(folder / "data/train.txt", text);
  write_file(config, R"({
    "model": {"name": "gpt2", "layers": 1, "width": 16, "heads": 2, "max_positions": 32},
    "data": {"name": "text", "max_length": 32, "batch_size": 8, "dir": ")" +
                         (folder / "data") + R"("},
    "optim": {"name": "adamw", "lr": 0.02}, "schedule": {"name": "constant"},
    "train": {"epochs": 5}, "threads": 1})");
  check("perplexity", false);
  REQUIRE(train("auto", "").status == 0);
  CHECK(file("auto", "summary.json")["best"] == file("perplexity", "summary.json")["best"]);
  // A perplexity that no number holds is no reason why a run cannot go on, nor be compared.
  REQUIRE(train("large", "--set optim.name=adam --set optim.lr=10 --set train.steps=2").status ==
          0);
  CHECK(file("large", "summary.json")["final"]["test_perplexity"].is_null());
  const Ran longer = train(
      "large", "--set optim.name=adam --set optim.lr=10 --set train.steps=2 --resume --extend 3");
  CHECK_MESSAGE(longer.status == 0, longer.err);
  CHECK(file("large", "summary.json")["steps"] == 3);
  const Ran compared = frugal("compare " + (folder / "large") + " " + (folder / "auto"));
  CHECK_MESSAGE(compared.status == 0, compared.err);
  CHECK(has(compared.out, " inf "));
  const Ran more = train("more", "--set train.metric=f1 --set model.vocab_size=999");
  CHECK(more.status == 2);
  CHECK(has(more.err, "model.vocab_size: expected"));
  REQUIRE(train("f1", "--set train.metric=f1 --set train.epochs=1").status == 0);
  CHECK(file("f1", "summary.json")["final"].contains("test_f1"));
  const Ran wrong = train("miou", "--set train.metric=miou");
  CHECK(wrong.status == 2);
  CHECK(has(wrong.err,
            "train.metric: expected auto, accuracy or one of f1, macro_f1, matthews and "
            "perplexity for text, got \"miou\""));
}

}  // namespace
}  // namespace frugal::apps
