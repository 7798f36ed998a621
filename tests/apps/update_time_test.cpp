// Weights and metrics have the same bits whether parameters are updated in the backward pass or
// after it, and the default takes less memory.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "apps/json.h"
#include "optim/registry.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Json resnet_to_update() {
  return Json::parse(R"({
    "model": {"name": "resnet20", "layers": 8},
    "data": {"name": "random", "shape": [8, 8, 3], "classes": 3, "batch_size": 16,
             "test_batch_size": 16, "train_samples": 69, "test_samples": 16, "flip": true},
    "optim": {"lr": 0.01},
    "compression": {"advanced": {"min_elements": 400}},
    "train": {"steps": 7, "log_interval": 1, "grad_norms": 2}, "threads": 1})");
}

struct UpdatedRun {
  std::string last, best, results;
  int64_t peak = 0;
};

UpdatedRun updated_run_in(const std::string& out) {
  return {read_file(out + "/checkpoint/last.safetensors"),
          read_file(out + "/checkpoint/best.safetensors"), results_in(out + "/metrics.jsonl"),
          Json::parse(read_file(out + "/summary.json"))["memory"]["peak_bytes"].get<int64_t>()};
}

UpdatedRun updated_run(const TempFolder& folder, Json config, const Json& in_backward) {
  config["optim"]["in_backward"] = in_backward;
  write_file(folder / "c.json", config.dump());
  const std::string out = folder / ("run" + in_backward.dump());
  const Ran ran = frugal("train " + folder / "c.json" + " --quiet --overwrite --out " + out);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return updated_run_in(out);
}

// A plan says what its steps take, which is the only difference that there may be.
void check_lines_equal(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  int lines = 0;
  for (std::string x, y; std::getline(left, x) && std::getline(right, y); ++lines)
    if (x.find("\"type\":\"plan\"") == std::string::npos) CHECK(x == y);
  CHECK(lines > 0);
  CHECK(std::count(a.begin(), a.end(), '\n') == std::count(b.begin(), b.end(), '\n'));
}

// less: does the default take less memory? Else the peak may lie in the forward pass.
void check_equal_updates(const Json& more, bool less = true) {
  CAPTURE(more.dump());
  const TempFolder folder;
  Json config = resnet_to_update();
  for (const char* section : {"model", "data"})
    if (more.contains(section)) config.erase(section);
  config.merge_patch(more);
  const UpdatedRun usual = updated_run(folder, config, nullptr),
                   after = updated_run(folder, config, false);
  CHECK((usual.last == after.last));
  CHECK((usual.best == after.best));
  check_lines_equal(usual.results, after.results);
  if (less) CHECK(usual.peak < after.peak);
}

}  // namespace

TEST_CASE("updates in the backward pass change no bit: every optimizer, groups and schedules") {
  for (const optim::Kind& kind : optim::kinds())
    check_equal_updates(
        {{"optim", {{"name", kind.name}, {"weight_decay", 0.01}, {"no_decay_norms", true}}}});
  check_equal_updates({{"optim", {{"name", "adamw"}, {"ema", 0.9}, {"layer_decay", 0.7}}}});
  check_equal_updates({{"optim",
                        {{"name", "sgd"},
                         {"momentum", 0},
                         {"weight_decay", 0.01},
                         {"weight_decay_of", {"layer1.=0.1"}}}}});
  check_equal_updates({{"train", {{"freeze", {"layer1.*"}}, {"freeze_epochs", 1}}}});
}

TEST_CASE("updates in the backward pass change no bit: every policy and what is around it") {
  const std::string file = std::filesystem::temp_directory_path().string();
  for (const Json& compression : std::vector<Json>{
           {{"bits", 0}, {"recipes", false}, {"advanced", nullptr}},
           {{"bits", 2}, {"entropy", true}},
           {{"bits", 3}, {"gact", {{"adaptive", true}, {"interval", 2}, {"samples", 4}}}},
           {{"policy", "actnn"}, {"bits", 3.5}, {"actnn", {{"interval", 2}}}},
           {{"policy", "acgc"}, {"acgc", {{"interval", 2}}}},
           {{"guard", 0.05}, {"advanced", {{"track_interval", 2}, {"track_samples", 4}}}},
           {{"memory_budget", "1/2 activations"}}}) {
    check_equal_updates({{"compression", compression}});
  }
  // With a file, another thread decides when memory is free.
  check_equal_updates({{"compression", {{"bits", 4}, {"offload", file}}}}, false);
}

TEST_CASE("updates in the backward pass change no bit: weights that several ops use, and others") {
  const Json tokens = {{"name", "random_tokens"},
                       {"max_length", 12},
                       {"batch_size", 4},
                       {"train_samples", 170}},
             adam = {{"name", "adamw"}, {"lr", 0.002}},
             graph = {{"name", "random_graph"},
                      {"nodes", 60},
                      {"edges", 200},
                      {"features", 8},
                      {"classes", 3}},
             pixels = {{"name", "random_masks"}, {"shape", {32, 32, 3}}, {"classes", 2},
                       {"train_samples", 10},    {"test_samples", 3},    {"batch_size", 4}};
  const Json small = {{"layers", 1}, {"width", 16}, {"heads", 2}, {"vocab_size", 30}};
  const auto with = [&](const char* name, Json model, const Json& data) {
    model["name"] = name;
    return Json{{"model", model}, {"data", data}, {"optim", adam}};
  };
  check_equal_updates(with("gpt2", small, tokens), false);
  check_equal_updates(with("bert_tiny", small,
                           {{"name", "random_tokens"},
                            {"max_length", 12},
                            {"batch_size", 4},
                            {"train_samples", 14},
                            {"test_samples", 4},
                            {"classes", 2}}),
                      false);
  Json adapters = with("decoder", small, tokens);
  adapters["adapter"] = {{"type", "lora"}, {"rank", 2}};
  check_equal_updates(adapters, false);
  check_equal_updates(with("gcn", {{"layers", 3}, {"width", 16}}, graph), false);
  check_equal_updates(with("gat", {{"layers", 2}, {"width", 8}, {"heads", 2}}, graph), false);
  check_equal_updates(with("unet", {{"width", 4}}, pixels), false);
}

TEST_CASE("a run that was killed goes on with updates at the other time, to the same bits") {
  const TempFolder folder;
  Json config = resnet_to_update();
  config["compression"]["gact"] = {{"adaptive", true}, {"interval", 3}, {"samples", 4}};
  config["train"]["checkpoint_interval"] = 1;
  config["train"]["steps"] = 24;
  write_file(folder / "c.json", config.dump());
  const std::string train = fmt::format("train {} --quiet --resume", folder / "c.json");
  REQUIRE(frugal(train + " --out " + folder / "whole").status == 0);
  const UpdatedRun whole = updated_run_in(folder / "whole");
  const std::vector<std::string> ways = {"", " --set optim.in_backward=false"};
  for (size_t first = 0; first < 2; ++first) {
    const std::string out = folder / ("cut" + std::to_string(first));
    REQUIRE(cut_run(train + ways[first], out, "checkpoint/state.safetensors", 0, SIGKILL) ==
            128 + SIGKILL);
    const Ran ran = frugal(train + ways[1 - first] + " --out " + out);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const UpdatedRun cut = updated_run_in(out);
    CHECK((cut.last == whole.last));
    CHECK((cut.best == whole.best));
    check_lines_equal(cut.results, whole.results);
  }
}

TEST_CASE("a plan of a budget depends on when parameters are updated, so a run keeps to that") {
  const TempFolder folder;
  Json config = resnet_to_update();
  config["compression"]["memory_budget"] = "4/5";  // kernels of AVX2 need more than 3/4
  config["train"]["checkpoint_interval"] = 1;
  write_file(folder / "c.json", config.dump());
  const std::string train =
      "train " + folder / "c.json" + " --quiet --resume --out " + folder / "run";
  REQUIRE(frugal(train).status == 0);
  const Ran other = frugal(train + " --set optim.in_backward=false");
  CHECK(other.status == 2);
  CHECK(has(other.err, "optim.in_backward"));
  CHECK(frugal(train + " --set optim.in_backward=true").status == 0);
}

TEST_CASE("what keeps large gradients is said once, and small ones are not worth it") {
  const TempFolder folder;
  // 3072 * 4096 weights, so gradients of 48 MiB.
  Json config = Json::parse(R"({
    "model": {"name": "mlp", "hidden": [4096]},
    "data": {"name": "random", "shape": [32, 32, 3], "classes": 2, "batch_size": 2,
             "train_samples": 2, "test_samples": 2, "workers": 0},
    "optim": {"momentum": 0}, "train": {"steps": 1}, "threads": 1})");
  const auto lines = [&](const std::string& command, const std::string& sets) {
    write_file(folder / "c.json", config.dump());
    const Ran ran = frugal(command + " " + folder / "c.json" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const std::string text = ran.out + ran.err;
    CHECK(longest_line(ran.out) <= 80);
    const size_t at = text.find("gradients (");
    CHECK((at == std::string::npos || text.find("gradients (", at + 1) == std::string::npos));
    return at == std::string::npos ? "" : text.substr(at);
  };
  const std::string clipped = " --set optim.clip_norm=1";
  const std::string said =
      "gradients (48.0 MiB) are kept until a step ends: optim.clip_norm needs the norm\n"
      "of all gradients\n";
  for (const std::string command :
       {"train", "plan", "profile --set device=meta", "bench step --set device=meta"}) {
    CAPTURE(command);
    CHECK(lines(command, clipped).starts_with(said));
    CHECK(lines(command, "").empty());
    CHECK(lines(command, " --set optim.in_backward=false").empty());
    CHECK(lines(command, clipped + " --set model.hidden=[256]").empty());
  }
}

}  // namespace frugal::apps
