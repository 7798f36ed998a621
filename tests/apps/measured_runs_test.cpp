// What the program writes of runs whose gradients are measured: widths, convergence, the guard.
#include <doctest/doctest.h>

#include <sstream>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kGraphRun = R"({
  "model": {"name": "gcn", "width": 32, "dropout": 0},
  "data": {"name": "random_graph", "nodes": 600, "edges": 1800, "features": 24, "classes": 3,
           "sampler": "neighbours", "batch_size": 40, "fan_outs": [4, 4]},
  "optim": {"name": "adam", "lr": 0.01},
  "compression": {"level": "L1.2", "advanced": {"min_elements": 96, "track_interval": 1}},
  "train": {"epochs": 4}, "threads": 1})";

std::vector<Json> convergence_lines(const std::string& metrics) {
  std::vector<Json> found;
  std::stringstream lines(read_file(metrics));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Json::parse(line);
    if (json["type"] == "convergence") found.push_back(json);
  }
  return found;
}

}  // namespace

TEST_CASE("an adaptive run writes its widths down and does not depend on threads") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {
      {"level", "L2"}, {"advanced", {{"min_elements", 96}}}, {"gact", {{"interval", 7}}}};
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + folder / "c.json" + " --json";
  const Ran whole = frugal(train + " --out " + folder / "a");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const Ran threads = frugal(train + " --set threads=2 --out " + folder / "b");
  Json a = Json::parse(whole.out), b = Json::parse(threads.out);
  CHECK(a["final"] == b["final"]);
  CHECK(a["speed"]["adaptation_share"] > 0);
  int widths = 0;
  std::stringstream lines(read_file(folder / "a/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    widths += Json::parse(line)["type"] == "widths";
  CHECK(widths == 80 / 7);
}

TEST_CASE("a short batch of which half has no variance is not measured, and the run goes on") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "simsiam", "trunk": "resnet20", "projector": [8, 8], "predictor": 4},
    "data": {"name": "random", "shape": [8, 8, 3], "classes": 3, "batch_size": 6,
             "train_samples": 15, "test_samples": 6},
    "compression": {"bits": 4, "advanced": {"min_elements": 96, "track_interval": 1}},
    "train": {"epochs": 1}, "threads": 1})");
  const Ran ran = frugal("train " + folder / "c.json" + " --out " + folder / "r");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  std::vector<int64_t> measured;
  for (const Json& line : convergence_lines(folder / "r/metrics.jsonl"))
    measured.push_back(line["step"].get<int64_t>());
  CHECK(measured == std::vector<int64_t>{1, 2});  // the third batch has 3 samples
}

TEST_CASE("a watched run trains as one that is not, and writes what it saw") {
  for (const Json& keep :
       {Json{{"level", "L1.2"}}, Json{{"level", "L2.1"}, {"gact", {{"interval", 9}}}},
        Json{{"policy", "actnn"}, {"level", "L3"}, {"actnn", {{"interval", 9}}}},
        Json{{"policy", "acgc"}, {"acgc", {{"interval", 9}}}},
        Json{{"memory_budget", "1/6 activations"}, {"gact", {{"interval", 9}}}}}) {
    CAPTURE(keep.dump());
    const TempFolder folder;
    Json config = Json::parse(kTinyConfig);
    config["compression"] = keep;
    config["compression"]["advanced"]["min_elements"] = 96;
    const bool sgd = !keep.contains("level");
    config["optim"] = {{"name", sgd ? "sgd" : "adam"}, {"lr", sgd ? 0.05 : 0.003}};
    write_file(folder / "c.json", config.dump());
    const std::string train = "train " + folder / "c.json" + " --json --out ";
    const Ran plain = frugal(train + folder / "a");
    const Ran watched =
        frugal(train + folder / "b" + " --set compression.advanced.track_interval=10");
    REQUIRE_MESSAGE(watched.status == 0, watched.err);
    CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
          read_file(folder / "b/checkpoint/last.safetensors"));
    Json a = Json::parse(plain.out), b = Json::parse(watched.out);
    CHECK(a["final"] == b["final"]);
    CHECK(!a.contains("convergence"));
    CHECK(a["speed"]["tracking_share"] == 0);
    CHECK(b["speed"]["tracking_share"] > 0);
    const std::vector<Json> lines = convergence_lines(folder / "b/metrics.jsonl");
    REQUIRE(lines.size() == 8);
    CHECK(lines[1]["step"] == 20);
    CHECK(lines[7]["minibatch_variance"] > 0);
    CHECK(lines[7]["added_variance"] > 0);
    // A budget has no room for the pass that measures it.
    const Json& bias = lines[7]["squared_bias"];
    CHECK(bias.is_null() == keep.contains("memory_budget"));
    const auto share = lines[7]["added_share"].get<double>(),
               both = lines[7]["added_variance"].get<double>() +
                      (bias.is_null() ? 0 : bias.get<double>());
    CHECK(share ==
          doctest::Approx(std::max(both, 0.0) / lines[7]["minibatch_variance"].get<double>()));
    CHECK(b["convergence"]["bound"] == lines[7]["bound"]);
    CHECK(b["convergence"]["bound"].is_null() == !sgd);
    if (keep.value("policy", "gact") == "gact" && !sgd)
      CHECK(b["convergence"]["bits"] == (keep["level"] == "L1.2" ? 2 : 3));
    const Ran shown = frugal("compare " + folder / "b");
    CHECK(shown.out.find("compression adds") != std::string::npos);
    CHECK(shown.out.find("by squared bias") != std::string::npos);  // "-" where it is not known
    CHECK(frugal("compare " + folder / "a").out.find("compression adds") == std::string::npos);
  }
}

TEST_CASE("a guarded run that was stopped goes on as if it had not been") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {{"level", "L1.1"},
                           {"guard", 0.1},
                           {"advanced", {{"min_elements", 96}, {"track_interval", 5}}}};
  config["train"]["epochs"] = 3;
  config["train"]["checkpoint_interval"] = 20;
  write_file(folder / "c.json", config.dump());
  const std::string train = "train " + folder / "c.json" + " --json --resume --out ";
  const Ran whole = frugal(train + folder / "a");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  shell("FRUGAL " + train + folder / "b" +
        R"( & p=$!; while kill -0 $p && ! grep -q '"step":50}' )" + folder / "b/metrics.jsonl" +
        "; do sleep 0.002; done; kill -KILL $p; wait $p");
  const Ran resumed = frugal(train + folder / "b" + " --set threads=2");
  REQUIRE_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(read_file(folder / "a/checkpoint/last.safetensors") ==
        read_file(folder / "b/checkpoint/last.safetensors"));
  CHECK(results_in(folder / "a/metrics.jsonl") == results_in(folder / "b/metrics.jsonl"));
  const std::vector<Json> lines = convergence_lines(folder / "a/metrics.jsonl");
  CHECK(lines.back()["bits"] < 8);

  const Ran refused = frugal(train + folder / "c" + " --set compression.level=L0");
  CHECK(refused.status == 2);
  CHECK(refused.err.find("compression.guard: expected") != std::string::npos);
}

TEST_CASE("a watched run on subgraphs trains as one that is not; a guarded one changes bits") {
  const TempFolder folder;
  write_file(folder / "c.json", kGraphRun);
  for (const char* sampler : {"neighbours", "clusters", "random_walk"}) {
    CAPTURE(sampler);
    const std::string train = fmt::format(
        "train {} --json --set data.sampler={} --set data.clusters=50 {}"
        "--set compression.level=L1 --out ",
        folder / "c.json", sampler,
        std::string(sampler) == "random_walk" ? "--set data.sampler_batches=10 " : "");
    const std::string name = folder / sampler;
    const Ran plain = frugal(train + name + "a --set compression.advanced.track_interval=0");
    const Ran watched = frugal(train + name + "b --set compression.advanced.track_interval=4");
    REQUIRE_MESSAGE(watched.status == 0, watched.err);
    CHECK(read_file(name + "a/checkpoint/last.safetensors") ==
          read_file(name + "b/checkpoint/last.safetensors"));
    const Json found = Json::parse(watched.out)["convergence"];
    CHECK(found["minibatch_variance"] > 0);
    CHECK(found["added_variance"] > 0);
    const Ran guarded = frugal(
        train + name + "c --set compression.advanced.track_interval=4 --set compression.guard=0.5");
    REQUIRE_MESSAGE(guarded.status == 0, guarded.err);
    CHECK(Json::parse(guarded.out)["convergence"]["next_bits"] < 4);
  }
}

}  // namespace frugal::apps
