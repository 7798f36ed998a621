// The real binary on graphs whose nodes have several labels, from files as GraphSAINT's.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <set>

#include "apps/json.h"
#include "core/rng.h"
#include "tests/apps/run.h"
#include "tests/data/formats/arrays.h"

namespace frugal::apps {
namespace {

constexpr int64_t kNodes = 200, kLabels = 5, kWidth = 10;

bool has_label(int64_t node, int64_t label) {
  return uniform_int({3, 1}, static_cast<uint64_t>(node * kLabels + label), 4) == 0;
}

// A quarter of all answers is yes; features tell them through noise.
void write_graph(const TempFolder& folder) {
  std::set<std::pair<int32_t, int32_t>> edges;
  for (uint64_t e = 0; e < 400; ++e) {
    const auto a = static_cast<int32_t>(uniform_int({3, 2}, 2 * e, kNodes));
    const auto b = static_cast<int32_t>(uniform_int({3, 2}, 2 * e + 1, kNodes));
    if (a != b) edges.insert({{a, b}, {b, a}});
  }
  std::vector<int32_t> row_ptr(kNodes + 1), col;
  for (const auto& [row, from] : edges) {
    ++row_ptr[static_cast<size_t>(row) + 1];
    col.push_back(from);
  }
  for (size_t row = 0; row < kNodes; ++row) row_ptr[row + 1] += row_ptr[row];
  std::vector<std::pair<std::string, std::string>> matrix;
  matrix.emplace_back("format.npy", frugal_test::npy("|S3", "()", "csr"));
  frugal_test::add_csr(matrix, "", kNodes, kNodes, row_ptr, col,
                       std::vector<float>(col.size(), 1.0F));
  write_file(folder / "adj_full.npz", frugal_test::zip(matrix, true));

  std::vector<double> x;
  std::map<std::string, std::vector<int64_t>> labels, roles;
  for (int64_t v = 0; v < kNodes; ++v) {
    for (int64_t f = 0; f < kWidth; ++f)
      x.push_back((has_label(v, f % kLabels) ? 1 : 0) +
                  0.3 * static_cast<double>(normal({3, 3}, static_cast<uint64_t>(v * kWidth + f))));
    for (int64_t c = 0; c < kLabels; ++c)
      labels[std::to_string(v)].push_back(has_label(v, c) ? 1 : 0);
    roles[v % 5 == 3 ? "va" : v % 5 == 4 ? "te" : "tr"].push_back(v);
  }
  write_file(folder / "feats.npy", frugal_test::npy("<f8", fmt::format("({}, {})", kNodes, kWidth),
                                                    frugal_test::raw_bytes(x)));
  write_file(folder / "class_map.json", Json(labels).dump());
  write_file(folder / "role.json", Json(roles).dump());
}

std::string config_of(const TempFolder& folder) {
  return fmt::format(R"({{
    "model": {{"name": "sage", "width": 32, "dropout": 0.1}},
    "data": {{"name": "graphsaint", "dir": "{}", "batch_size": 40, "fan_outs": [4, 4],
              "sampler": "neighbours"}},
    "optim": {{"name": "adam", "lr": 0.01, "weight_decay": 0}},
    "schedule": {{"name": "constant"}},
    "compression": {{"level": "L1", "advanced": {{"min_elements": 96}}}},
    "train": {{"epochs": 40, "log_interval": 3, "checkpoint_interval": 1}},
    "threads": 1}})",
                     folder / "");
}

}  // namespace

TEST_CASE("several labels a node: the loss falls, micro-F1 rises, by every sampler") {
  const TempFolder folder;
  write_graph(folder);
  write_file(folder / "c.json", config_of(folder));
  const double all_yes = 2 * 0.25 / 1.25;  // micro-F1 of who always says so
  for (const std::string sets :
       {"--set data.sampler=full", "", "--set data.sampler=clusters",
        "--set data.sampler=random_walk --set data.sampler_batches=4",
        "--set data.sampler=edge --set data.sampler_batches=4 --set model.name=gcn",
        "--set model.name=gcnii --set model.layers=2 --set data.sampler=node --set "
        "data.sampler_batches=4"}) {
    CAPTURE(sets);
    const Ran ran = frugal("train " + folder / "c.json" + " --json " + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json summary = Json::parse(ran.out);
    CHECK(summary["final"]["train_loss"].get<double>() < 0.6);  // log 2 at the start
    CHECK(summary["best"]["test_micro_f1"].get<double>() > all_yes + 0.1);
    CHECK(summary["best"]["validation"]["micro_f1"].get<double>() > all_yes + 0.1);
    CHECK(summary["memory"]["packed_bytes"].get<int64_t>() > 0);
  }
  // Half of what an answer says is right by chance; of these three quarters, without any yes.
  const Ran ran = frugal("train " + folder / "c.json" +
                         " --json --set data.sampler=full --set train.epochs=150");
  const Json summary = Json::parse(ran.out);
  CHECK(summary["best"]["test_micro_f1"].get<double>() > 0.8);
  CHECK(summary["best"]["test_accuracy"].get<double>() > 0.85);
}

TEST_CASE("several labels a node: a run goes on where a signal ended it; the best is by micro-F1") {
  const TempFolder folder;
  write_graph(folder);
  write_file(folder / "c.json", config_of(folder));
  const std::string train =
      "train " + folder / "c.json" + " --set data.sampler=random_walk --set data.sampler_batches=4";
  REQUIRE(frugal(train + " --out " + folder / "whole").status == 0);
  CHECK(cut_run(train, folder / "cut", "checkpoint/state.safetensors", 0, SIGTERM) == 143);
  REQUIRE(frugal(train + " --out " + folder / "cut" + " --resume").status == 0);
  for (const char* name : {"metrics.jsonl", "checkpoint/last.safetensors",
                           "checkpoint/best.safetensors", "checkpoint/state.safetensors"}) {
    CAPTURE(name);
    const bool same = read_file(folder / "whole/" + name) == read_file(folder / "cut/" + name);
    CHECK(same);
  }
  const Json best = Json::parse(read_file(folder / "whole/summary.json"))["best"];
  std::stringstream lines(read_file(folder / "whole/metrics.jsonl"));
  double highest = 0, first = 0;
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    if (entry["type"] != "epoch") continue;
    const double score = entry["validation"]["micro_f1"].get<double>();
    if (score > highest) first = entry["epoch"].get<double>();
    highest = std::max(highest, score);
  }
  CHECK(best["validation"]["micro_f1"].get<double>() == highest);
  CHECK(best["epoch"].get<double>() == first);
}

TEST_CASE("several labels a node: answers that are not known are left out, in any column") {
  const TempFolder folder;
  const std::string graph = folder / "ogbn_arxiv/";
  std::string features, edges, parts[3];
  for (int64_t v = 0; v < 60; ++v) {
    for (int64_t c = 0; c < 3; ++c)
      features += fmt::format("{}{}", c == 0 ? "" : ",", has_label(v, c) ? 1 : 0.25);
    features += "\n";
    edges += fmt::format("{},{}\n", v, (v * 7 + 1) % 60);
    parts[v < 40 ? 0 : v < 50 ? 1 : 2] += fmt::format("{}\n", v);
  }
  std::filesystem::create_directories(graph + "raw");
  std::filesystem::create_directories(graph + "split/time");
  write_file(graph + "raw/node-feat.csv", features);
  write_file(graph + "raw/edge.csv", edges);
  for (size_t i = 0; i < 3; ++i)
    write_file(graph + "split/time/" + std::vector{"train", "valid", "test"}[i] + ".csv", parts[i]);
  write_file(folder / "c.json", fmt::format(R"({{
    "model": {{"name": "gcn", "width": 8, "dropout": 0, "input_dropout": 0}},
    "data": {{"name": "ogbn_arxiv", "dir": "{}"}}, "optim": {{"name": "adam", "lr": 0.01}},
    "compression": {{"bits": 0}}, "train": {{"epochs": 1}}, "threads": 1}})",
                                            folder / ""));
  for (const int64_t column : {0, 1}) {
    CAPTURE(column);
    std::string labels;
    for (int64_t v = 0; v < 60; ++v)
      for (int64_t c = 0; c < 3; ++c)
        labels += (c == column && v % 4 == 0 ? "nan"
                   : has_label(v, c)         ? "1"
                                             : "0") +
                  std::string(c == 2 ? "\n" : ",");
    write_file(graph + "raw/node-label.csv", labels);
    const std::string run = folder / std::to_string(column);
    const Ran ran = frugal("train " + folder / "c.json" + " --json --out " + run);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    // 10 nodes of 3 labels each, of which 3 (nodes 40, 44 and 48) are not known: 27 answers.
    CHECK(Json::parse(ran.out)["final"]["validation"]["samples"] == 9);
  }
}

TEST_CASE("several labels a node: what does not fit is refused by name") {
  const TempFolder folder;
  write_graph(folder);
  write_file(folder / "c.json", config_of(folder));
  const auto refused = [&](const std::string& set, const char* path, const char* word) {
    const Ran ran = frugal("train " + folder / "c.json" + " --set " + set);
    CAPTURE(set);
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find(path) != std::string::npos, ran.err);
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, ran.err);
  };
  refused("model.num_classes=6", "model.num_classes", "5, the labels of graphsaint");
  refused("train.label_smoothing=0.1", "train.label_smoothing", "several labels");
  refused("data.split=[0.6,0.2]", "data.split", "null");
}

}  // namespace frugal::apps
