#include "apps/cli/progress.h"

#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

ProgressLine line() {
  ProgressLine line;
  line.epoch = 3, line.epochs = 164;
  line.step = 1173, line.steps = 64124;
  line.loss = 1.23456, line.accuracy = 0.5432;
  line.unit = "tokens", line.units_per_second = 1234.5;
  line.memory = 50 << 20;
  line.seconds_left = 3723;
  return line;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("progress: units, and the time left on every width") {
  CHECK(progress_text(line()) ==
        "epoch 3/164  step 1173/64124  loss 1.2346  acc 54.32%  1234 tokens/s  50.0 MiB  1:02:03 "
        "left");
  for (int64_t columns = 36; columns <= 200; ++columns) {
    const std::string text = progress_text(line(), columns);
    CAPTURE(text);
    CHECK(static_cast<int64_t>(text.size()) <= columns);
    CHECK(has(text, "step 1173/64124"));
    CHECK(text.ends_with("1:02:03 left"));
  }
  CHECK(has(progress_text(line(), 79), "loss 1.2346"));
  CHECK(has(progress_text(line(), 79), "tokens/s"));
  CHECK(has(progress_text(line(), 46), "tokens/s"));
  CHECK(progress_text(line(), 150).starts_with("[...."));
  CHECK(progress_text(line(), 5).size() == 5);
  ProgressLine slow = line();
  slow.units_per_second = 0.257;
  CHECK(has(progress_text(slow), "0.26 tokens/s"));
}

TEST_CASE("the summary counts what the data are made of") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string steps = " --set train.steps=4 --set train.log_interval=2 --json ";
  const auto speed = [&](const std::string& sets) {
    const Ran ran = frugal("train " + folder / "c.json" + steps + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    Json found = Json::parse(ran.out)["speed"];
    CHECK(has(ran.err, found["unit"].get<std::string>() + "/s"));
    CHECK(has(ran.err, " left\n"));
    return found;
  };
  const std::string other = "--set data.shape=null --set data.name=";
  CHECK(speed("")["unit"] == "images");
  const Json tokens = speed(other +
                            "random_tokens --set model.name=bert_tiny --set "
                            "data.max_length=8 --set data.batch_size=4");
  CHECK(tokens["unit"] == "tokens");
  CHECK(tokens["units_per_second"].get<double>() ==
        doctest::Approx(8 * tokens["samples_per_second"].get<double>()));
  const Json nodes = speed(other +
                           "random_graph --set model.name=gcn --set data.nodes=60 --set "
                           "data.edges=90 --set data.features=8");
  CHECK(nodes["unit"] == "nodes");
}

TEST_CASE("compare: multiples of the first run, lengths, headings and differences") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto train = [&](const std::string& name, const std::string& sets) {
    const Ran ran = frugal("train " + folder / "c.json" + " --out " + folder / name + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(read_file(folder / (name + "/summary.json")));
  };
  const Json a = train("a", " --set train.steps=4");
  const Json b = train("b", " --set train.steps=6 --set compression.level=L0");
  train("c", " --set train.steps=4 --set compression.memory_budget=3MiB");
  train("d", " --set train.steps=4 --set compression.policy=actnn --set compression.level=L3");
  const Ran ran = frugal("compare " + folder / "a" + " " + folder / "b" + "/ " + folder / "c" +
                         " " + folder / "d");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  for (const char* part : {"a: mlp, L1, recipes", "b: mlp, L0, recipes", "c: mlp, budget 3MiB",
                           "d: mlp, actnn L3", "note: the runs took 4 and 6 and 4 and 4 steps",
                           "compression.bits", "train.steps", "compression.memory_budget"})
    CHECK_MESSAGE(has(ran.out, part), part, "\n", ran.out);
  CHECK_FALSE(has(ran.out, "data.batch_size"));
  // More memory is more than 1, as more time is.
  const auto times = [&](const char* key) {
    return fmt::format("({:.2f}x)",
                       b["memory"][key].get<double>() / a["memory"][key].get<double>());
  };
  CHECK(has(ran.out, times("activation_bytes")));
  CHECK(has(ran.out, times("peak_bytes")));
  CHECK(b["memory"]["activation_bytes"] > a["memory"]["activation_bytes"]);
  CHECK(has(ran.out, fmt::format("({:.2f}x)", b["speed"]["step_ms_median"].get<double>() /
                                                  a["speed"]["step_ms_median"].get<double>())));
  CHECK(has(ran.out, "whole process: with the program"));
}

}  // namespace frugal::apps
