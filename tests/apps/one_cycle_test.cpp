// one_cycle with a momentum that moves against the rate, schedules that a run does not come to, and
// weights for another picture size: as a user runs them, from a file.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Json cycled(const std::string& optimizer) {
  Json config = Json::parse(kTinyConfig);
  config["optim"] = {{"name", optimizer}, {"lr", 0.02}};
  config["schedule"] = {{"name", "one_cycle"},
                        {"three_phase", true},
                        {"cycle_momentum", true},
                        {"base_momentum", 0.6}};
  return config;
}

Json tiny_vit(int64_t side) {
  return {{"model", {{"name", "vit_b_16"}, {"layers", 1}, {"heads", 2}, {"width", 16}}},
          {"data",
           {{"name", "random"},
            {"shape", {side, side, 3}},
            {"classes", 3},
            {"batch_size", 8},
            {"train_samples", 16},
            {"test_samples", 8}}},
          {"optim", {{"lr", 0.01}}},
          {"train", {{"epochs", 1}}},
          {"threads", 1}};
}

}  // namespace

TEST_CASE("a run that cycles its momentum is cut and goes on to the same bits") {
  for (const char* optimizer : {"sgd", "adamw"}) {
    CAPTURE(optimizer);
    const TempFolder folder;
    write_file(folder / "c.json", cycled(optimizer).dump());
    const std::string train = "train " + (folder / "c.json") + " --quiet";
    const auto weights = [&](const char* run) {
      return read_file(folder / (std::string(run) + "/checkpoint/last.safetensors"));
    };
    REQUIRE(frugal(train + " --out " + (folder / "a")).status == 0);
    CHECK(cut_run(train, folder / "b", "metrics.jsonl", 1500, SIGKILL) != 0);
    REQUIRE(frugal(train + " --resume --out " + (folder / "b")).status == 0);
    CHECK(weights("a") == weights("b"));
    // The momentum is that of the schedule: without it other weights come out.
    Json fixed = cycled(optimizer);
    fixed["schedule"] = {{"name", "one_cycle"}, {"three_phase", true}};
    write_file(folder / "c.json", fixed.dump());
    REQUIRE(frugal(train + " --out " + (folder / "c")).status == 0);
    CHECK(weights("a") != weights("c"));
  }
}

TEST_CASE("a warm-up and milestones that a run does not come to are told of") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto said = [&](const std::string& sets) {
    const Ran ran = frugal("train " + (folder / "c.json") + " --set train.steps=20" + sets);
    CHECK_MESSAGE(ran.status == 0, ran.err);
    return ran.err;
  };
  const auto check_has = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const std::string step = " --set schedule.name=step --set 'schedule.milestones=";
  check_has(said(" --set schedule.name=cosine --set schedule.warmup_steps=21"),
            "schedule.warmup_steps: the warm-up takes 21 steps and the run has 20, so the "
            "learning rate does not come to optim.lr");
  check_has(said(" --set schedule.name=cosine --set schedule.warmup_steps=20 "
                 "--set schedule.warmup_start=0.1"),
            "the warm-up takes 20 steps and the run has 20");
  check_has(said(" --set schedule.name=linear --set schedule.warmup_epochs=900"),
            "schedule.warmup_epochs: the warm-up takes ");
  check_has(said(step + "[0.1,70,90]'"), "so the learning rate does not fall at 70, 90");
  for (const std::string& sets :
       {std::string(), step + "[0.1]'", step + "[0.1]' --set schedule.warmup_steps=15",
        std::string(" --set schedule.name=cosine --set schedule.warmup_steps=20")})
    CHECK(said(sets).find("schedule.") == std::string::npos);
}

TEST_CASE("momenta of a cycle that contradict other keys are refused") {
  const TempFolder folder;
  const auto refused = [&](const Json& config) {
    write_file(folder / "c.json", config.dump());
    const Ran ran = frugal("train " + (folder / "c.json"));
    CHECK(ran.status == 2);
    return ran.err;
  };
  Json config = cycled("sgd");
  config["optim"]["momentum"] = 0.5;
  CHECK(has(refused(config), "optim.momentum"));
  config = cycled("adafactor");
  CHECK(has(refused(config), "schedule.cycle_momentum"));
  config = cycled("sgd");
  config["schedule"]["base_momentum"] = 0.97;
  CHECK(has(refused(config), "at most max_momentum = 0.95"));
  config = cycled("sgd");
  config["schedule"]["peak_at"] = 0.6;
  CHECK(has(refused(config), "at most 0.5 with three_phase"));
}

TEST_CASE("warm-up from 0 begins with a rate of 0") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["schedule"] = {{"name", "cosine"}, {"warmup_steps", 4}, {"warmup_start", 0}};
  config["train"]["log_interval"] = 1;
  write_file(folder / "c.json", config.dump());
  const Ran ran = frugal("train " + (folder / "c.json") + " --quiet --out " + (folder / "a"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  std::stringstream lines(read_file(folder / "a/metrics.jsonl"));
  std::vector<double> rates;
  for (std::string line; std::getline(lines, line);)
    if (const Json json = Json::parse(line); json["type"] == "step") rates.push_back(json["lr"]);
  REQUIRE(rates.size() > 5);
  CHECK(rates[0] == 0);
  CHECK(rates[1] == doctest::Approx(0.0125));
  CHECK(rates[4] == doctest::Approx(0.05));
}

TEST_CASE("a ViT starts from weights for pictures of another size, and says so") {
  const TempFolder folder;
  write_file(folder / "small.json", tiny_vit(32).dump());
  REQUIRE(frugal("train " + (folder / "small.json") + " --out " + (folder / "small")).status == 0);
  Json large = tiny_vit(48);
  large["model"]["weights"] = folder / "small";
  write_file(folder / "large.json", large.dump());
  const Ran ran = frugal("train " + (folder / "large.json") + " --out " + (folder / "large"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "positions interpolated"));
  CHECK(has(ran.err, "encoder.pos_embedding: from 2 x 2 to 3 x 3"));
  const auto file = data::SafetensorsFile::open(folder / "large/checkpoint/last.safetensors");
  CHECK(file.info("encoder.pos_embedding").shape == Shape({1, 10, 16}));
  // The run's own commands take its own size alone.
  CHECK(frugal("eval " + (folder / "large")).status == 0);
}

}  // namespace frugal::apps
