// The real binary on sequences and graphs: training, resuming, gradients, text, and bad input.
#include <doctest/doctest.h>

#include <cmath>
#include <map>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kBert = R"({
  "model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2, "vocab_size": 60},
  "data": {"name": "random_tokens", "batch_size": 8, "max_length": 12, "classes": 3,
           "train_samples": 96, "test_samples": 24},
  "optim": {"name": "adamw", "lr": 0.01, "clip_norm": 1},
  "schedule": {"name": "linear", "warmup_steps": 4},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 2, "log_interval": 3, "checkpoint_interval": 1},
  "threads": 1})";

constexpr const char* kGraph = R"({
  "model": {"name": "sage", "width": 16},
  "data": {"name": "random_graph", "nodes": 300, "edges": 900, "features": 24, "classes": 3,
           "sampler": "neighbours", "batch_size": 20, "fan_outs": [4, 4]},
  "optim": {"name": "adam", "lr": 0.01},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 4, "log_interval": 3, "checkpoint_interval": 1},
  "threads": 1})";

Json summary_of(const Ran& ran) {
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

std::string words() {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "the cat sat on the mat. ";
  return text;
}

}  // namespace

TEST_CASE("every family of networks trains from a configuration, with packed activations") {
  const TempFolder folder;
  write_file(folder / "bert.json", kBert);
  write_file(folder / "graph.json", kGraph);
  write_file(folder / "words.txt", words());
  // This seed's loss falls without a halt. That of seed 0 halts at 0.42, and when it goes on
  // depends on the last bits of products, so on the CPU.
  const Json bert = summary_of(
      frugal("train " + folder / "bert.json" + " --json --set train.epochs=40 --set seed=1"));
  CHECK(bert["final"]["test_accuracy"].get<double>() > 0.8);  // the classes' words tell them
  CHECK(bert["memory"]["packed_bytes"].get<int64_t>() > 0);
  CHECK(!bert["final"].contains("validation"));
  for (const std::string model : {"gcn", "sage", "gat", "gcnii"}) {
    CAPTURE(model);
    const Json graph = summary_of(frugal(fmt::format(
        "train {} --json --set model.name={} --set data.sampler=full --set train.epochs=40{}",
        folder / "graph.json", model, model == "gcnii" ? " --set model.layers=4" : "")));
    CHECK(graph["final"]["train_loss"].get<double>() < 1.0);  // log 3 at the start
    CHECK(graph["best"]["validation"]["accuracy"].get<double>() > 0.5);
    CHECK(graph["memory"]["packed_bytes"].get<int64_t>() > 0);
  }
  for (const std::string sampler : {"random_walk", "node", "edge", "clusters", "neighbours"})
    for (const std::string model : {"gcn", "sage", "gat", "gcnii"}) {
      CAPTURE(sampler);
      CAPTURE(model);
      const Json graph = summary_of(frugal(fmt::format(
          "train {} --json --set data.sampler={} --set model.name={} --set train.epochs=30 --set "
          "model.dropout=0.1{}{}{}{}",
          folder / "graph.json", sampler, model,
          sampler == "clusters"     ? " --set data.clusters=40"
          : sampler == "neighbours" ? ""
                                    : " --set data.sampler_batches=5",
          model == "gcnii" ? " --set model.layers=4" : " --set model.input_dropout=0",
          model == "gat" ? " --set model.attention_dropout=0.1" : "",
          // If few nodes are drawn apart, edges are rare and their coefficients large.
          sampler == "node" ? " --set data.batch_size=200" : "")));
      CHECK(graph["final"]["test_accuracy"].get<double>() > 0.6);
    }
  const Json text = summary_of(frugal(fmt::format(
      "train {} --json --set model.name=gpt2 --set model.vocab_size=null --set data.name=text "
      "--set data.dir={} --set data.classes=null --set train.epochs=8",
      folder / "bert.json", folder / "words.txt")));
  CHECK(text["final"]["test_loss"].get<double>() < 2);  // 12 characters
}

TEST_CASE("a run on sequences or a graph goes on where a signal ended it, to the same bits") {
  for (const char* config : {kBert, kGraph}) {
    const TempFolder folder;
    write_file(folder / "c.json", config);
    const std::string train = "train " + folder / "c.json";
    REQUIRE(frugal(train + " --out " + folder / "whole").status == 0);
    CHECK(cut_run(train, folder / "cut", "checkpoint/state.safetensors", 0, SIGTERM) == 143);
    REQUIRE(frugal(train + " --out " + folder / "cut" + " --resume").status == 0);
    for (const char* name : {"metrics.jsonl", "checkpoint/last.safetensors",
                             "checkpoint/best.safetensors", "checkpoint/state.safetensors"}) {
      CAPTURE(name);
      const bool same = read_file(folder / "whole/" + name) == read_file(folder / "cut/" + name);
      CHECK(same);
    }
  }
}

TEST_CASE("sequences and graphs do not depend on threads, but for rounding without AVX-512") {
  for (const char* config : {kBert, kGraph}) {
    const TempFolder folder;
    write_file(folder / "c.json", config);
    // Large enough for several threads to have work.
    const std::string train =
        "train " + folder / "c.json" + " --set model.width=128 --set data.batch_size=64 --out ";
    REQUIRE(frugal(train + folder / "1").status == 0);
    REQUIRE(frugal(train + folder / "3" + " --set threads=3").status == 0);
    const auto loss = [&](const char* out) {
      const Json summary = Json::parse(read_file(folder / out + std::string("/summary.json")));
      return summary["final"]["test_loss"].get<double>();
    };
    CHECK(loss("3") == doctest::Approx(loss("1")).epsilon(1e-3));
    if (!products_ignore_threads()) continue;
    const std::string metrics = "metrics.jsonl", weights = "checkpoint/last.safetensors";
    CHECK((results_in(folder / "1/" + metrics) == results_in(folder / "3/" + metrics)));
    CHECK((read_file(folder / "1/" + weights) == read_file(folder / "3/" + weights)));
  }
}

TEST_CASE("networks and data that do not fit are refused by name") {
  const TempFolder folder;
  write_file(folder / "bert.json", kBert);
  write_file(folder / "graph.json", kGraph);
  auto refused = [&](const char* file, const std::string& sets, const char* path,
                     const char* word) {
    const Ran ran = frugal("train " + folder / file + " " + sets);
    CAPTURE(sets);
    CHECK(ran.status == 2);
    CHECK_MESSAGE(ran.err.find(path) != std::string::npos, ran.err);
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, ran.err);
  };
  refused("bert.json", "--set model.name=resnet20", "model.name", "bert_tiny");
  refused("graph.json", "--set model.name=bert_tiny", "model.name", "gcnii");
  refused("bert.json", "--set model.max_positions=8", "model.max_positions", "12");
  write_file(folder / "words.txt", words());
  refused("bert.json",
          "--set model.name=gpt2 --set model.vocab_size=5 --set data.name=text --set "
          "data.classes=null --set data.dir=" +
              folder / "words.txt",
          "model.vocab_size", "expected at least 11");
  refused("bert.json", "--set data.name=sst2 --set data.dir=/ --set data.classes=null",
          "data.vocabulary", "vocab.txt");
  refused("bert.json",
          "--set model.name=gpt2 --set data.name=text --set data.classes=null --set data.dir=" +
              folder / "none",
          "data.dir", "text file");
  refused("graph.json", "--set data.sampler=clusters --set data.clusters=5", "data.batch_size",
          "5");
  refused("bert.json", "--set compression.advanced.signs=rebuilt", "compression.advanced.signs",
          "codes, masks");
  refused("graph.json", "--set 'optim.weight_decay_of=[\"conv\"]'", "optim.weight_decay_of",
          "NAME=DECAY");
  refused("graph.json", "--set 'optim.weight_decay_of=[\"none.=1\"]'", "optim.weight_decay_of",
          "none.");
  refused("graph.json", "--set data.split=[0.7,0.3]", "data.split", "0.7");
  refused("graph.json", "--set compression.advanced.track_interval=5 --set data.sampler=full",
          "compression.advanced.track_interval", "data.sampler full");
}

TEST_CASE("a language model that learned its text by heart writes it, and the same for a seed") {
  const TempFolder folder;
  write_file(folder / "words.txt", words());
  write_file(folder / "c.json",
             fmt::format(R"({{"model": {{"name": "gpt2", "layers": 1, "width": 32, "heads": 2,
                                        "max_positions": 16, "dropout": 0}},
                             "data": {{"name": "text", "dir": "{}", "batch_size": 16,
                                       "max_length": 16}},
                             "optim": {{"name": "adamw", "lr": 0.01}},
                             "compression": {{"level": "L1", "advanced": {{"min_elements": 96}}}},
                             "train": {{"epochs": 1, "steps": 120}}, "threads": 1}})",
                         folder / "words.txt"));
  REQUIRE(frugal("train " + folder / "c.json" + " --out " + folder / "run").status == 0);
  const std::string model = "generate " + folder / "c.json" + " --checkpoint " +
                            folder / "run/checkpoint/last.safetensors --tokens 16 ";
  const std::string generate = model + "--prompt 'the cat ' ";
  const Ran greedy = frugal(generate + "--temperature 0");
  REQUIRE_MESSAGE(greedy.status == 0, greedy.err);
  CHECK(greedy.out == "the cat sat on the mat. \n");
  const std::string drawn = frugal(generate + "--temperature 3 --seed 1").out;
  CHECK(drawn == frugal(generate + "--temperature 3 --seed 1").out);
  CHECK(drawn != frugal(generate + "--temperature 3 --seed 2").out);
  const Ran foreign = frugal(model + "--prompt X");
  CHECK(foreign.status == 1);
  CHECK_MESSAGE(foreign.err.find("alphabet") != std::string::npos, foreign.err);
}

TEST_CASE("gradients of token and graph batches from files") {
  const TempFolder folder;
  write_file(folder / "bert.json", kBert);
  write_file(
      folder / "graph.json",
      R"({"model": {"name": "gcn", "width": 4, "dropout": 0}, "compression": {"level": "L0"}})");
  REQUIRE(frugal("train " + folder / "bert.json" + " --set train.steps=1 --out " + folder / "run")
              .status == 0);
  std::map<std::string, Tensor> batch;
  auto run = [&](const std::string& config, const std::string& weights) {
    std::vector<std::pair<std::string, Tensor>> all(batch.begin(), batch.end());
    data::write_safetensors(folder / "b", all);
    return frugal("grad " + config + " --weights " + weights + " --batch " + folder / "b" +
                  " --out " + folder / "g" + " --json");
  };
  const std::string bert = folder / "run/checkpoint/last.safetensors";
  const std::string dry = folder / "dry.json";
  write_file(dry, R"({"model": {"name": "bert_tiny", "layers": 1, "width": 16, "heads": 2,
                                "dropout": 0, "attention_dropout": 0},
                      "compression": {"level": "L0"}})");
  auto loss = [&](const Ran& ran) {
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["loss"].get<double>();
  };
  // What the mask hides does not matter.
  batch["input_ids"] = Tensor::from<int64_t>({5, 6, 7, 0, 8, 9, 1, 2}, {2, 4});
  batch["attention_mask"] = Tensor::from<int64_t>({1, 1, 1, 0, 1, 1, 1, 1}, {2, 4});
  batch["target"] = Tensor::from<int64_t>({0, 2}, {2});
  const double masked = loss(run(dry, bert));
  batch["input_ids"] = Tensor::from<int64_t>({5, 6, 7, 50, 8, 9, 1, 2}, {2, 4});
  CHECK(loss(run(dry, bert)) == masked);
  batch.erase("attention_mask");
  CHECK(loss(run(dry, bert)) != masked);
  batch["input"] = batch["input_ids"];
  CHECK(run(dry, bert).err.find("'input'") != std::string::npos);
  batch.erase("input");
  batch["target"] = Tensor::from<int64_t>({0, 2, 1}, {3});
  CHECK(run(dry, bert).err.find("[2] i64") != std::string::npos);

  // A graph: nodes outside of the mask do not count.
  const std::string weights = folder / "w";
  data::write_safetensors(weights, {{"convs.0.lin.weight", Tensor::full({4, 2}, 0.5)},
                                    {"convs.0.bias", Tensor::full({4}, 0.1)},
                                    {"convs.1.lin.weight", Tensor::full({3, 4}, 0.25)},
                                    {"convs.1.bias", Tensor::from<float>({0, 1, 2}, {3})}});
  const std::string graph = folder / "graph.json";
  batch.clear();
  batch["x"] = Tensor::from<float>({1, 0, 0, 1, 1, 1}, {3, 2});
  batch["edge_index"] = Tensor::from<int64_t>({0, 1, 1, 0}, {2, 2});
  batch["target"] = Tensor::from<int64_t>({2, 0, 0}, {3});
  const double all = loss(run(graph, weights));
  batch["mask"] = Tensor::from<uint8_t>({1, 0, 0}, {3});
  const double first = loss(run(graph, weights));
  // The last layer's biases alone tell the classes apart.
  CHECK(first == doctest::Approx(std::log(std::exp(-2.0) + std::exp(-1.0) + 1)).epsilon(1e-5));
  CHECK(all == doctest::Approx(first + 2 * 2.0 / 3).epsilon(1e-5));
  batch["edge_index"] = Tensor::from<int64_t>({0, 1, 1, 3}, {2, 2});
  CHECK(run(graph, weights).status == 1);
  batch.erase("edge_index");
  CHECK(run(graph, weights).err.find("edge_index") != std::string::npos);
}

TEST_CASE("patience: a run ends that many epochs after its lowest validation loss") {
  const TempFolder folder;
  write_file(folder / "graph.json", kGraph);
  const std::string train = "train " + folder / "graph.json" +
                            " --set data.sampler=full --set train.epochs=400 --set optim.lr=0.05" +
                            " --set train.patience=7 --out ";
  const Ran ran = frugal(train + folder / "run");
  REQUIRE(ran.status == 0);
  const Json summary = Json::parse(read_file(folder / "run/summary.json"));
  const int64_t best = summary["best"]["epoch"].get<int64_t>();
  CHECK(summary["epochs"].get<int64_t>() < 400);
  int64_t lowest_at = 0, last = 0;
  double lowest = 1e9;
  std::stringstream lines(read_file(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    if (entry["type"] != "epoch") continue;
    last = entry["epoch"].get<int64_t>();
    const double loss = entry["validation"]["loss"].get<double>();
    if (loss < lowest) lowest = loss, lowest_at = last;
  }
  CHECK(best == lowest_at);
  CHECK(last == best + 7);
  // It has ended: there is nothing to resume.
  const std::string before = read_file(folder / "run/metrics.jsonl");
  CHECK(frugal(train + folder / "run --resume").status == 0);
  CHECK(read_file(folder / "run/metrics.jsonl") == before);
  CHECK(Json::parse(read_file(folder / "run/summary.json")) == summary);  // its speed, too
  write_file(folder / "bert.json", kBert);
  write_file(folder / "words.txt", words());
  const Ran refused = frugal("train " + folder / "bert.json" + " --set train.patience=3");
  CHECK(refused.status == 2);
  CHECK(refused.err.find("train.patience") != std::string::npos);
}

}  // namespace frugal::apps
