// Runs that end early, keep several weights and measure gradients by layer, also where they are
// cut.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "apps/cli/training_run.h"
#include "apps/config/resolve.h"
#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

std::vector<Json> lines_of(const std::string& run, const std::string& type) {
  std::vector<Json> all;
  std::stringstream lines(read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const Json entry = Json::parse(line); entry["type"] == type) all.push_back(entry);
  return all;
}

// Weights below checkpoint/ that keep_best keeps.
std::set<std::string> kept_in(const std::string& run) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoint"))
    if (const std::string name = entry.path().filename().string(); name.starts_with("best_step_"))
      names.insert(name);
  return names;
}

struct Tiny {
  TempFolder folder;
  std::string config = folder / "c.json";
  Tiny() { write_file(config, kTinyConfig); }
  Json train(const std::string& sets, const std::string& run = "run") const {
    const Ran ran =
        frugal("train " + config + " --set train.epochs=30 --set data.train_samples=320 --out " +
               folder / run + " " + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(read_file(folder / run + "/summary.json"));
  }
};

}  // namespace

TEST_CASE_FIXTURE(Tiny, "a run stops after evaluations that are no better, and says why") {
  const Json stopped = train(
      "--set train.early_stop.patience=2 --set train.early_stop.min_delta=0.9 --set "
      "train.early_stop.metric=accuracy");
  CHECK(stopped["ended"] == "early_stop");
  CHECK(stopped["epochs"] == 3);  // the first evaluation, and two that are not better by 0.9
  const Json by_loss = train("--set train.early_stop.patience=3 --set optim.lr=0.2", "loss");
  CHECK(by_loss["ended"] == "early_stop");
  double lowest = 1e9;
  int64_t at = 0, last = 0;
  for (const Json& line : lines_of(folder / "loss", "epoch")) {
    last = line["epoch"].get<int64_t>();
    if (const auto loss = line["test_loss"].get<double>(); loss < lowest) lowest = loss, at = last;
  }
  CHECK(last == at + 3);
  // The epoch of the lowest loss, not of the highest accuracy.
  CHECK(by_loss["best"]["epoch"] == at);
  CHECK(by_loss["best"]["test_loss"] == lowest);
  CHECK(train("--set train.epochs=2", "whole")["ended"] == "epochs");
  const Json steps = train("--set train.steps=5", "steps");
  CHECK(steps["ended"] == "steps");
  CHECK(!steps.contains("kept"));
  CHECK(kept_in(folder / "steps").empty());
}

TEST_CASE_FIXTURE(Tiny, "the weights of the best evaluations are kept, and no others") {
  const Json summary = train("--set train.keep_best=3 --set train.epochs=8");
  std::vector<std::pair<double, int64_t>> all;  // accuracy, and the step
  for (const Json& line : lines_of(folder / "run", "epoch"))
    all.emplace_back(line["test_accuracy"].get<double>(), line["step"].get<int64_t>());
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  REQUIRE(summary["kept"].size() == 3);
  std::set<std::string> expected;
  for (size_t i = 0; i < 3; ++i) {
    CHECK(summary["kept"][i]["step"] == all[i].second);
    const auto file = summary["kept"][i]["file"].get<std::string>();
    expected.insert(fs::path(file).filename().string());
    const Ran eval =
        frugal("eval " + folder / "run" + " --json --weights " + folder / "run/" + file);
    REQUIRE_MESSAGE(eval.status == 0, eval.err);
    CHECK(Json::parse(eval.out)["loss"] == summary["kept"][i]["test_loss"]);
  }
  CHECK(kept_in(folder / "run") == expected);
  CHECK(read_file(folder / "run/" + summary["kept"][0]["file"].get<std::string>()).size() ==
        read_file(folder / "run/checkpoint/best.safetensors").size());
}

TEST_CASE_FIXTURE(Tiny, "a cut run stops at the same step and keeps the same weights") {
  Json document = Json::parse(kTinyConfig);
  document["train"] = {{"epochs", 30},
                       {"log_interval", 3},
                       {"checkpoint_interval", 3},
                       {"keep_best", 2},
                       {"grad_norms", 4},
                       {"early_stop", {{"patience", 3}, {"min_delta", 0.01}}}};
  document["data"]["train_samples"] = 160;
  document["optim"]["lr"] = 0.2;
  Config parsed = parse_config(document);
  resolve(parsed);
  TrainOptions options;
  options.quiet = true;
  options.out = folder / "whole";
  std::vector<std::string> cuts;
  options.saved = [&](int64_t step) {
    cuts.push_back(folder / fmt::format("cut{}", step));
    fs::copy(folder / "whole", cuts.back(), fs::copy_options::recursive);
  };
  const Json whole = TrainingRun(parsed, options).run();
  REQUIRE(whole["ended"] == "early_stop");
  REQUIRE(cuts.size() > 20);
  options.saved = {};
  options.resume = true;
  // Every fourth cut: 12 steps lie between two of them, so they meet every place of an epoch of 5
  // steps.
  for (size_t i = (cuts.size() - 1) % 4; i < cuts.size(); i += 4) {
    const std::string& cut = cuts[i];
    CAPTURE(cut);
    // What a process leaves that is killed behind an evaluation and before its checkpoint.
    write_file(cut + "/checkpoint/best_step_999.safetensors", "of an evaluation to come");
    write_file(cut + "/checkpoint/best_step_998.safetensors.123.tmp", "half of one");
    options.out = cut;
    const Json summary = TrainingRun(parsed, options).run();
    for (const char* key : {"ended", "kept", "best", "final", "steps"})
      CHECK(summary[key] == whole[key]);
    CHECK(kept_in(cut) == kept_in(folder / "whole"));
    CHECK((read_file(cut + "/metrics.jsonl") == read_file(folder / "whole/metrics.jsonl")));
    for (const std::string& name : kept_in(cut))
      CHECK((read_file(cut + "/checkpoint/" + name) ==
             read_file(folder / "whole/checkpoint/" + name)));
  }
  // A run that has ended has nothing to resume, and says again why.
  options.out = folder / "whole";
  CHECK(TrainingRun(parsed, options).run()["ended"] == "early_stop");
}

TEST_CASE_FIXTURE(Tiny, "norms of gradients by layer add up to the whole norm, and change no bit") {
  for (const std::string other : {"", " --set optim.in_backward=true --set optim.clip_norm=0"}) {
    CAPTURE(other);
    const std::string sets = "--set train.steps=12 --set train.log_interval=4" + other;
    fs::remove_all(folder / "plain");
    fs::remove_all(folder / "norms");
    train(sets, "plain");
    train(sets + " --set train.grad_norms=4", "norms");
    CHECK(lines_of(folder / "plain", "grad_norms").empty());
    const auto norms = lines_of(folder / "norms", "grad_norms"),
               steps = lines_of(folder / "norms", "step");
    REQUIRE(norms.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(norms[i]["step"] == steps[i]["step"]);
      REQUIRE(norms[i]["norms"].size() == 3);
      double squares = 0;
      for (const char* layer : {"fc1", "fc2", "fc3"})
        squares += std::pow(norms[i]["norms"][layer].get<double>(), 2);
      CHECK(std::sqrt(squares) == doctest::Approx(steps[i]["grad_norm"].get<double>()));
    }
    CHECK((read_file(folder / "plain/checkpoint/last.safetensors") ==
           read_file(folder / "norms/checkpoint/last.safetensors")));
  }
}

TEST_CASE_FIXTURE(Tiny, "early stopping that contradicts itself or the data") {
  const auto refused = [&](const std::string& sets, const char* word) {
    const Ran ran = frugal("train " + config + " " + sets);
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, ran.err);
  };
  refused("--set train.early_stop.patience=-1", "train.early_stop.patience");
  refused("--set train.early_stop.min_delta=0.1", "train.early_stop.min_delta");
  refused("--set train.early_stop=3", "train.early_stop");
  refused("--set train.early_stop.patience=2 --set train.early_stop.metric=f2", "f2");
  refused("--set train.early_stop.patience=2 --set train.early_stop.metric=metric",
          "no other metric");
  refused("--set train.keep_best=0", "train.keep_best");
  refused("--set train.grad_norms=-1", "train.grad_norms");
  write_file(config, R"({"model": {"name": "gcn"}, "data": {"name": "random_graph"},
                         "train": {"patience": 3, "early_stop": {"patience": 3}}})");
  refused("", "train.patience");
}

}  // namespace frugal::apps
