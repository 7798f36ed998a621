// The real binary on every kind of data, from tiny files, and on the networks for images.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"
#include "tests/data/formats/arrays.h"

namespace frugal::apps {
namespace {

using frugal_test::npy_of;

constexpr const char* kWords[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good",
                                  "bad",   "a",     "the",   "movie", "##s",    "was"};

std::string vocabulary() {
  std::string text;
  for (const char* word : kWords) text += std::string(word) + "\n";
  return text;
}

// A transformer of one layer that reads words.
Json words_config(const TempFolder& folder, const std::string& model, const std::string& data) {
  return {{"model",
           {{"name", model},
            {"layers", 1},
            {"width", 16},
            {"heads", 2},
            {"max_positions", 16},
            {"dropout", 0},
            {"attention_dropout", 0}}},
          {"data",
           {{"name", data},
            {"batch_size", 8},
            {"test_batch_size", 7},
            {"max_length", 12},
            {"vocabulary", folder / "vocab.txt"}}},
          {"optim", {{"name", "adamw"}, {"lr", 0.02}}},
          {"compression", {{"level", "L1"}, {"advanced", {{"min_elements", 96}}}}},
          {"train", {{"epochs", 8}}},
          {"threads", 1}};
}

Json summary_of(const std::string& arguments) {
  const Ran ran = frugal(arguments);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

Json trained(const TempFolder& folder, const Json& config, const std::string& sets = {}) {
  write_file(folder / "c.json", config.dump());
  return summary_of("train " + folder / "c.json" + " --json " + sets);
}

// Sentences whose class "good" tells, in the form of a task's file.
std::string table(const std::string& task, int rows) {
  std::string text = task == "cola"   ? ""
                     : task == "sst2" ? "sentence\tlabel\n"
                                      : "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
  for (int i = 0; i < rows; ++i) {
    const bool good = i % 3 != 0;
    const std::string sentence = i % 2 == 0 ? "The movies was " : "a Movie ";
    const std::string last = good ? "good" : "bad", label = good ? "1" : "0";
    if (task == "cola")
      text += fmt::format("x{}\t{}\t\t{}{}\n", i, label, sentence, last);
    else if (task == "sst2")
      text += fmt::format("{}{}\t{}\n", sentence, last, label);
    else
      text += fmt::format("{}\t{}\t{}\t{}\tthe {}\n", label, 2 * i, 2 * i + 1, sentence, last);
  }
  return text;
}

}  // namespace

TEST_CASE("tables of sentences train to their tasks' metrics") {
  const TempFolder folder;
  write_file(folder / "vocab.txt", vocabulary());
  for (const std::string task : {"sst2", "cola", "mrpc"}) {
    CAPTURE(task);
    const std::string dir = folder / task;
    std::filesystem::create_directory(dir);
    write_file(dir + "/train.tsv", table(task, 72));
    write_file(dir + "/dev.tsv", table(task, 30));
    Json config = words_config(folder, "bert_tiny", task);
    config["data"]["dir"] = dir;
    const Json last = trained(folder, config)["final"];
    CHECK(last["test_accuracy"] == 1);
    CHECK(last.contains("test_f1") == (task == "mrpc"));
    CHECK(last.contains("test_matthews") == (task == "cola"));
    if (task == "sst2") continue;
    const char* metric = task == "mrpc" ? "test_f1" : "test_matthews";
    CHECK(last[metric] == 1);
    // One that gives one answer to all: yes is right for 20 of 30.
    const Json first = trained(
        folder, config, "--set train.steps=1 --set optim.lr=1e-12 --set train.epochs=1")["final"];
    const double accuracy = first["test_accuracy"];
    const bool yes = accuracy == doctest::Approx(2.0 / 3);
    REQUIRE((yes || accuracy == doctest::Approx(1.0 / 3)));
    // F1 of precision 2/3 and recall 1, or of no yes; Matthews of a constant.
    CHECK(first[metric].get<double>() == doctest::Approx(task == "mrpc" && yes ? 0.8 : 0));
  }
}

TEST_CASE("text by pieces of words and by pairs of bytes, and the perplexity of both") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 80; ++i) text += "the movies was good. ";
  write_file(folder / "words.txt", text);
  write_file(folder / "vocab.txt", vocabulary() + ".\n");
  // GPT-2's spelling of every byte, and one merge.
  std::string bytes = "{\"th\": 256";
  for (int b = 0; b < 256; ++b) {
    const int code = b <= 32 ? 256 + b : b >= 127 && b <= 160 ? 162 + b : b == 173 ? 323 : b;
    bytes += fmt::format(", \"\\u{:04x}\": {}", code, b);
  }
  std::filesystem::create_directory(folder / "bpe");
  write_file(folder / "bpe/vocab.json", bytes + "}");
  write_file(folder / "bpe/merges.txt", "#version: 0.2\nt h\n");
  for (const std::string tokenizer : {"wordpiece", "byte_bpe", "characters"}) {
    CAPTURE(tokenizer);
    Json config = words_config(folder, "gpt2", "text");
    config["data"]["dir"] = folder / "words.txt";
    config["data"]["tokenizer"] = tokenizer;
    if (tokenizer == "byte_bpe") config["data"]["vocabulary"] = folder / "bpe";
    if (tokenizer == "characters") config["data"].erase("vocabulary");
    const std::string out = "--out " + folder / tokenizer;
    const Json last = trained(folder, config, out)["final"];
    CHECK(last["test_loss"].get<double>() < 1);
    CHECK(last["test_perplexity"].get<double>() ==
          doctest::Approx(std::exp(last["test_loss"].get<double>())));
    const Json evaluated = summary_of("eval " + folder / "c.json" + " --json --checkpoint " +
                                      folder / (tokenizer + "/checkpoint/last.safetensors"));
    CHECK(evaluated["loss"] == last["test_loss"]);
    CHECK(evaluated["perplexity"] == last["test_perplexity"]);
  }
}

// A gpt2 that reads letters.
Json letters_config(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "ab ba ";
  write_file(folder / "words.txt", text);
  Json config = words_config(folder, "gpt2", "text");
  config["data"]["dir"] = folder / "words.txt";
  config["data"].erase("vocabulary");
  return config;
}

TEST_CASE("a gpt2 is as wide between its layers as the configuration says") {
  const TempFolder folder;
  Json config = letters_config(folder);
  config["model"]["feed_forward"] = 12;
  trained(folder, config, "--set train.epochs=1 --out " + folder / "run");
  const auto weights =
      data::SafetensorsFile::open(folder / "run/checkpoint/last.safetensors").read_all();
  const auto found = std::find_if(weights.begin(), weights.end(), [](const auto& entry) {
    return entry.first == "transformer.h.0.mlp.c_fc.bias";
  });
  REQUIRE(found != weights.end());
  CHECK(found->second.shape() == Shape{12});
}

TEST_CASE("the best epoch of a language model is not that of the highest perplexity") {
  const TempFolder folder;
  Json config = letters_config(folder);
  const Json best = trained(folder, config, "--out " + folder / "run")["best"];
  std::map<int64_t, Json> epochs;
  std::stringstream lines(read_file(folder / "run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json entry = Json::parse(line);
    if (entry["type"] == "epoch") epochs[entry["epoch"].get<int64_t>()] = entry;
  }
  REQUIRE(epochs.size() == 8);
  for (const auto& [epoch, entry] : epochs) {
    CHECK(entry["test_perplexity"].get<double>() ==
          doctest::Approx(std::exp(entry["test_loss"].get<double>())));
    CHECK(entry["test_accuracy"] <= best["test_accuracy"]);
  }
  CHECK(best["test_perplexity"] == epochs.at(best["epoch"].get<int64_t>())["test_perplexity"]);
}

TEST_CASE("a network that guesses hidden words learns a text") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 160; ++i) text += "the movies was good ";
  write_file(folder / "words.txt", text);
  write_file(folder / "vocab.txt", vocabulary());
  Json config = words_config(folder, "bert_tiny", "text");
  config["data"]["dir"] = folder / "words.txt";
  config["data"]["tokenizer"] = "wordpiece";
  config["train"]["epochs"] = 60;
  const Json last = trained(folder, config)["final"];
  CHECK(last["test_loss"].get<double>() < std::log(5.0));  // 5 pieces: better than guessing
  CHECK(last["test_perplexity"].get<double>() ==
        doctest::Approx(std::exp(last["test_loss"].get<double>())));
  config["data"]["tokenizer"] = "characters";
  write_file(folder / "c.json", config.dump());
  const Ran refused = frugal("train " + folder / "c.json");
  CHECK(refused.status == 2);
  CHECK_MESSAGE(refused.err.find("data.tokenizer") != std::string::npos, refused.err);
}

TEST_CASE("a graph in one archive trains, dense or sparse") {
  // Two rings of 20 nodes: features and labels tell them apart.
  constexpr int32_t kNodes = 40;
  std::vector<int32_t> from{0}, to, feature_from{0}, feature;
  std::vector<int64_t> labels;
  for (int32_t v = 0; v < kNodes; ++v) {
    const int32_t ring = v / 20;
    to.push_back(ring * 20 + (v + 1) % 20);
    from.push_back(static_cast<int32_t>(to.size()));
    feature.push_back(3 * ring + v % 3);
    feature_from.push_back(static_cast<int32_t>(feature.size()));
    labels.push_back(ring);
  }
  const std::vector<float> ones(kNodes, 1);
  const TempFolder folder;
  write_file(folder / "g.npz",
             frugal_test::zip({{"adj_data.npy", npy_of<float>("<f4", ones)},
                               {"adj_indices.npy", npy_of<int32_t>("<i4", to)},
                               {"adj_indptr.npy", npy_of<int32_t>("<i4", from)},
                               {"adj_shape.npy", npy_of<int64_t>("<i8", {kNodes, kNodes})},
                               {"attr_data.npy", npy_of<float>("<f4", ones)},
                               {"attr_indices.npy", npy_of<int32_t>("<i4", feature)},
                               {"attr_indptr.npy", npy_of<int32_t>("<i4", feature_from)},
                               {"attr_shape.npy", npy_of<int64_t>("<i8", {kNodes, 6})},
                               {"labels.npy", npy_of<int64_t>("<i8", labels)}}));
  for (const bool sparse : {false, true}) {
    const Json summary =
        trained(folder, {{"model", {{"name", "gcn"}, {"width", 8}}},
                         {"data",
                          {{"name", "graph_npz"},
                           {"dir", folder / "g.npz"},
                           {"split", {0.5, 0.25}},
                           {"sparse_features", sparse}}},
                         {"optim", {{"name", "adam"}, {"lr", 0.05}}},
                         {"compression", {{"level", "L1"}, {"advanced", {{"min_elements", 96}}}}},
                         {"train", {{"epochs", 60}}},
                         {"threads", 1}});
    CHECK(summary["final"]["test_accuracy"] == 1);
    CHECK(summary["final"]["validation"]["samples"] == 10);
  }
}

TEST_CASE("networks for images train by their names") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "data": {"name": "random", "shape": [32, 32, 3], "classes": 3, "batch_size": 2,
             "test_batch_size": 2, "train_samples": 2, "test_samples": 2, "workers": 0},
    "optim": {"lr": 0.001, "clip_norm": 1},
    "compression": {"advanced": {"min_elements": 512}},
    "train": {"epochs": 1}})");
  // Clipped: norms over the two pixels of the last stage of densenet121 have gradients of 1e7.
  for (const std::string model :
       {"vgg11_bn --set model.width=32", "densenet121",
        "vit_b_16 --set model.layers=2 --set model.width=32 --set model.heads=2", "swin_t"}) {
    CAPTURE(model);
    const Json summary =
        summary_of("train " + folder / "c.json" + " --json --set model.name=" + model);
    CHECK(summary["steps"] == 1);
    CHECK(std::isfinite(summary["final"]["train_loss"].get<double>()));
    CHECK(std::isfinite(summary["final"]["test_loss"].get<double>()));
    CHECK(summary["memory"]["packed_bytes"].get<int64_t>() > 0);
  }
}

}  // namespace frugal::apps
