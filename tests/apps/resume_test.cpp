// A run whose process is killed goes on to the bits of one that was not, with all that it writes.
// What decides while it trains is cut everywhere in tests/train/run/resume_test.cpp.
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// Images whose widths follow from sensitivities.
Json images() {
  return Json::parse(R"({
    "model": {"name": "resnet20", "layers": 8},
    "data": {"name": "random", "shape": [8, 8, 3], "classes": 3, "batch_size": 16,
             "test_batch_size": 16, "train_samples": 69, "test_samples": 16, "flip": true,
             "crop_padding": 1},
    "optim": {"lr": 0.05, "clip_norm": 5},
    "compression": {"level": "L2", "gact": {"interval": 5, "samples": 4, "share": 1},
                    "advanced": {"min_elements": 400}},
    "train": {"steps": 24, "log_interval": 1, "checkpoint_interval": 1}, "threads": 1})");
}

// Subgraphs within a budget, which is coded, moved to a file and guarded.
Json subgraphs() {
  Json config = Json::parse(R"({
    "model": {"name": "gcn", "width": 32, "layers": 3},
    "data": {"name": "random_graph", "nodes": 500, "edges": 1500, "features": 32, "classes": 3,
             "sampler": "edge", "batch_size": 75, "sampler_batches": 6},
    "optim": {"name": "adam", "lr": 0.01},
    "compression": {"memory_budget": "1/8 activations", "entropy": true, "guard": 0.05,
                    "advanced": {"track_interval": 3, "track_samples": 2, "min_elements": 512,
                                 "offload_window": 4096},
                    "gact": {"interval": 4, "samples": 2, "share": 1}},
    "train": {"steps": 24, "log_interval": 1, "checkpoint_interval": 1}, "threads": 1})");
  config["compression"]["offload"] = fs::temp_directory_path().string();
  return config;
}

// What a finished run leaves. With a file, what lies in memory beside it goes with the speed of the
// disk, as its reads do. The state holds what the run would decide by, if it went on.
struct Left {
  std::string metrics, last, best;
  Json summary, state;
};

Left left_by(const std::string& folder, bool offload) {
  Json summary = Json::parse(read_file(folder + "/summary.json"));
  summary.erase("speed");
  summary.erase("offload");
  summary["memory"].erase("host_peak_rss");
  const auto file = data::SafetensorsFile::open(folder + "/checkpoint/state.safetensors");
  Json state = Json::parse(file.metadata().at("run"));
  for (const std::string& name : file.names())
    if (name.starts_with("learned/")) state[name] = file.read(name).to_vector();
  state.erase("offload");
  if (offload) state.erase("memory"), summary.erase("memory");
  return {read_file(folder + "/metrics.jsonl"), read_file(folder + "/checkpoint/last.safetensors"),
          read_file(folder + "/checkpoint/best.safetensors"), summary, state};
}

// The first line of `a` that is another in `b`, with that of `b`.
std::string first_difference(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  std::string x, y;
  while (std::getline(left, x))
    if (!std::getline(right, y) || x != y) return x + "\n" + y;
  return "";
}

}  // namespace

TEST_CASE("a process killed after its first checkpoint goes on to the same bits") {
  for (const Json& config : {images(), subgraphs()}) {
    const TempFolder folder;
    CAPTURE(config["data"]["name"].get<std::string>());
    write_file(folder / "c.json", config.dump());
    const bool offload = config["compression"].contains("offload");
    const std::string train = fmt::format("train {} --resume", folder / "c.json");
    REQUIRE(frugal(train + " --out " + folder / "whole").status == 0);
    const Left whole = left_by(folder / "whole", offload);
    CHECK(whole.metrics.find("\"type\":\"tensors\"") != std::string::npos);
    CHECK((whole.metrics.find("\"type\":\"memory\"") != std::string::npos) != offload);
    REQUIRE(cut_run(train, folder / "cut", "checkpoint/state.safetensors", 0, SIGKILL) ==
            128 + SIGKILL);
    CHECK(!fs::exists(folder / "cut/summary.json"));
    REQUIRE(frugal(train + " --out " + folder / "cut").status == 0);
    const Left cut = left_by(folder / "cut", offload);
    CAPTURE(first_difference(whole.metrics, cut.metrics));
    CHECK((cut.metrics == whole.metrics));
    CHECK((cut.last == whole.last));
    CHECK((cut.best == whole.best));
    CHECK(cut.summary == whole.summary);
    CHECK(cut.state == whole.state);
  }
}

// An evaluation takes the whole graph, whose features become bf16 once. Weights of classes are a
// tensor of the loss.
TEST_CASE("a step takes the same memory behind an evaluation and behind a checkpoint") {
  const auto lines_of_memory = [](const std::string& run) {
    std::istringstream lines(read_file(run + "/metrics.jsonl"));
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (line.find("\"type\":\"memory\"") != std::string::npos) found += line + "\n";
    return found;
  };
  for (const char* const config : {R"({
    "model": {"name": "sage", "layers": 2, "width": 8},
    "data": {"name": "random_graph", "nodes": 60, "edges": 200, "features": 8, "classes": 3,
             "sampler": "neighbours", "fan_outs": [3, 3], "batch_size": 10},
    "precision": "bf16_in_f32", "train": {"epochs": 1}, "threads": 1})",
                                   R"({
    "model": {"name": "mlp", "hidden": [8]},
    "data": {"name": "random", "shape": [4, 4, 1], "classes": 3, "train_samples": 12,
             "test_samples": 4, "batch_size": 4, "workers": 0},
    "train": {"epochs": 1, "class_weights": [1, 2, 3]}, "threads": 1})"}) {
    CAPTURE(config);
    const TempFolder folder;
    write_file(folder / "c.json", config);
    const std::string train = "train " + folder / "c.json" + " --quiet --out ";
    REQUIRE(frugal(train + folder / "whole --set train.epochs=2").status == 0);
    REQUIRE(frugal(train + folder / "cut").status == 0);
    REQUIRE(frugal(train + folder / "cut --resume --extend 2").status == 0);
    const std::string whole = lines_of_memory(folder / "whole");
    CHECK(std::count(whole.begin(), whole.end(), '\n') == 2);
    CHECK((lines_of_memory(folder / "cut") == whole));
  }
}

}  // namespace frugal::apps
