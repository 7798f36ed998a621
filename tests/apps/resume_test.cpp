// A run that is cut and goes on ends with the bits of one that was not, whatever it decides while
// it trains, and also where batches change in shape: every policy, wrapper, guard and tracker with
// short last batches, sampled graphs and sentences of different lengths.
//
// A compact version runs with the other tests. The whole campaign, each pair cut at each step:
//   test_apps -tc="*resume campaign*" --no-skip
#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "apps/cli/training_run.h"
#include "apps/config/resolve.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSteps = 20;

// ---- what decides
struct Variant {
  const char* name;
  const char* keys;  // what stands under "compression"
  bool offload = false;
};

constexpr Variant kVariants[] = {
    {"raw", R"({"level": "L0"})"},
    {"raw, moved", R"({"level": "L0"})", true},
    {"fixed", R"({"level": "L1"})"},
    {"fixed, guard",
     R"({"level": "L1", "guard": 0.05, "advanced": {"track_interval": 2, "track_samples": 2}})"},
    {"fixed, coded and moved", R"({"level": "L1.2", "entropy": true})", true},
    {"adaptive L2", R"({"level": "L2", "gact": {"interval": 5, "samples": 4, "share": 1}})"},
    {"adaptive L2.1, tracker",
     R"({"level": "L2.1", "gact": {"interval": 4, "samples": 2, "share": 0.3}, "advanced": {"track_samples": 2, "track_interval": 3}})"},
    {"adaptive L2.2, guard",
     R"({"level": "L2.2", "guard": 0.05, "gact": {"interval": 3, "samples": 2, "share": 0.5}, "advanced": {"track_samples": 2, "track_interval": 2}})"},
    {"adaptive L2, coded",
     R"({"level": "L2", "entropy": true, "gact": {"interval": 5, "samples": 4, "share": 1}})"},
    {"adaptive L2, moved, guard",
     R"({"level": "L2", "guard": 0.02, "gact": {"interval": 4, "samples": 2, "share": 1}, "advanced": {"track_samples": 2, "track_interval": 3}})",
     true},
    {"actnn L1", R"({"policy": "actnn", "level": "L1"})"},
    {"actnn L2, guard",
     R"({"policy": "actnn", "level": "L2", "guard": 0.05, "advanced": {"track_interval": 3, "track_samples": 2}})"},
    {"actnn L3", R"({"policy": "actnn", "level": "L3", "actnn": {"interval": 4}})"},
    {"actnn L3, guard",
     R"({"policy": "actnn", "level": "L3", "guard": 0.05, "actnn": {"interval": 3}, "advanced": {"track_interval": 2, "track_samples": 2}})"},
    {"actnn L3, coded, tracker",
     R"({"policy": "actnn", "level": "L3", "entropy": true, "actnn": {"interval": 3}, "advanced": {"track_interval": 3, "track_samples": 2}})"},
    {"actnn L4, moved", R"({"policy": "actnn", "level": "L4", "actnn": {"interval": 5}})", true},
    {"actnn L5, moved, recipes off",
     R"({"policy": "actnn", "level": "L5", "recipes": false, "actnn": {"interval": 3}})", true},
    {"acgc", R"({"policy": "acgc", "acgc": {"interval": 4}})"},
    {"acgc expected, guard",
     R"({"policy": "acgc", "guard": 0.05, "acgc": {"interval": 3, "count": "expected"}, "advanced": {"rounding": "stochastic", "track_interval": 2, "track_samples": 2}})"},
    {"acgc, coded codec, tracker",
     R"({"policy": "acgc", "acgc": {"interval": 3, "codec": "entropy"}, "advanced": {"rounding": "nearest", "track_interval": 4, "track_samples": 2}})"},
    {"acgc, moved", R"({"policy": "acgc", "acgc": {"interval": 3}})", true},
    {"budget of activations",
     R"({"memory_budget": "1/6 activations", "gact": {"interval": 4, "samples": 4, "share": 1}})"},
    {"budget of the peak, tracker",
     R"({"peak_budget": true, "gact": {"interval": 5, "samples": 2, "share": 1}, "advanced": {"track_samples": 2, "track_interval": 3}})"},
    {"budget, coded",
     R"({"memory_budget": "1/8 activations", "entropy": true, "gact": {"interval": 3, "samples": 4, "share": 1}})"},
    {"budget, guard",
     R"({"memory_budget": "1/4 activations", "guard": 0.05, "advanced": {"track_interval": 2, "track_samples": 2}, "gact": {"interval": 5, "samples": 2, "share": 1}})"},
    {"budget, coded and moved, guard",
     R"({"tight_budget": true, "entropy": true, "guard": 0.05, "advanced": {"track_interval": 3, "track_samples": 2}, "gact": {"interval": 4, "samples": 2, "share": 1}})",
     true},
    {"actnn L2.5", R"({"policy": "actnn", "level": "L2.5", "actnn": {"interval": 3}})"},
    {"actnn as published", R"({"preset": "actnn_paper", "actnn": {"interval": 3}})"},
    {"gact as published, guard",
     R"({"preset": "gact_paper", "guard": 0.05, "gact": {"interval": 3, "samples": 4}, "advanced": {"track_interval": 2, "track_samples": 2}})"},
    {"acgc as published", R"({"preset": "acgc_paper", "acgc": {"interval": 3}})"},
};

// Gradients of samples are kept from epoch to epoch, of data that have samples.
constexpr Variant kBySample = {
    "actnn, gradients of samples, tracker",
    R"({"policy": "actnn", "level": "L3", "actnn": {"interval": 1, "use_gradient": true}, "advanced": {"track_interval": 3, "track_samples": 2}})"};

// ---- what it trains on
constexpr const char* kWords[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"};

// Sentences of 1 to 11 words.
void write_sentences(const TempFolder& folder) {
  std::string words, train = "sentence\tlabel\n";
  for (const char* word : kWords) words += std::string(word) + "\n";
  for (int i = 0; i < 44; ++i) {
    for (int k = 0; k <= i * 7 % 11; ++k) train += (k * i) % 3 == 0 ? "good " : "bad ";
    train += fmt::format("\t{}\n", i % 2);
  }
  write_file(folder / "vocab.txt", words);
  write_file(folder / "train.tsv", train);
  write_file(folder / "dev.tsv", train);
}

Json images() {
  return {{"model", {{"name", "resnet20"}}},
          {"data",
           {{"name", "random"},
            {"shape", {8, 8, 3}},
            {"classes", 3},
            {"batch_size", 16},
            {"test_batch_size", 16},
            {"train_samples", 69},
            {"test_samples", 16},
            {"flip", true},
            {"crop_padding", 1}}},
          {"optim", {{"lr", 0.05}, {"clip_norm", 5}}}};
}

// images(), with samples of one batch mixed and two batches in a step.
Json mixed_images() {
  Json config = images();
  config["data"]["mixup"] = 0.4;
  config["data"]["cutmix"] = 1;
  return config;
}

Json graph(const std::string& sampler) {
  Json data = {{"name", "random_graph"}, {"nodes", 2000}, {"edges", 6000},
               {"features", 32},         {"classes", 3},  {"sampler", sampler}};
  const bool saint = sampler == "random_walk" || sampler == "node" || sampler == "edge";
  if (sampler == "neighbours") {
    data["batch_size"] = 270;
    data["fan_outs"] = {3, 3, 3};
  } else if (sampler == "clusters") {
    data["clusters"] = 40;
    data["batch_size"] = 11;
  } else {
    data["batch_size"] = sampler == "node" ? 900 : 300;
    data["sampler_batches"] = 6;
  }
  return {{"model", {{"name", saint ? "gcn" : "sage"}, {"width", 32}, {"layers", 3}}},
          {"data", data},
          {"optim", {{"name", "adam"}, {"lr", 0.01}}}};
}

Json sentences(const TempFolder& folder) {
  return {
      {"model",
       {{"name", "bert_tiny"}, {"layers", 1}, {"width", 16}, {"heads", 2}, {"max_positions", 16}}},
      {"data",
       {{"name", "sst2"},
        {"dir", folder / ""},
        {"batch_size", 7},
        {"test_batch_size", 44},
        {"max_length", 14},
        {"vocabulary", folder / "vocab.txt"}}},
      {"optim", {{"name", "adamw"}, {"lr", 0.01}}}};
}

const std::vector<std::string> kData = {"images",     "node",     "edge",     "random_walk",
                                        "neighbours", "clusters", "sentences"};

Config config_of(const TempFolder& folder, const std::string& data, const Variant& variant,
                 int64_t steps) {
  Json config = data == "images"      ? images()
                : data == "mixed"     ? mixed_images()
                : data == "sentences" ? sentences(folder)
                                      : graph(data);
  Json compression = Json::parse(variant.keys);
  compression["advanced"]["min_elements"] = data == "images" ? 400 : data == "sentences" ? 96 : 512;
  // Masks and indices, which nothing makes smaller, are more of what other networks keep.
  if (compression.contains("tight_budget")) {
    compression["memory_budget"] = data == "images" ? "1/30 activations" : "1/8 activations";
    compression.erase("tight_budget");
  }
  if (compression.contains("peak_budget")) {
    // Elsewhere transient tensors are more than what compression takes away.
    compression["memory_budget"] = data == "images" ? "0.95/1" : "1/1";
    compression.erase("peak_budget");
  }
  if (variant.offload) {
    compression["offload"] = fs::temp_directory_path().string();
    compression["advanced"]["offload_window"] = 4096;
  }
  config["compression"] = compression;
  config["train"] = {{"steps", steps}, {"log_interval", 1}, {"checkpoint_interval", 1}};
  if (data == "mixed") config["train"]["gradient_accumulation"] = 2;
  config["threads"] = 1;
  Config parsed = parse_config(config);
  drop_unread(parsed);
  resolve(parsed);
  return parsed;
}

// ---- cuts
// With a file, what lies in memory beside it goes with the speed of the disk, as its reads do.
Json without_time(Json summary, bool offload) {
  summary.erase("speed");
  summary.erase("offload");
  summary["memory"].erase("host_peak_rss");
  if (offload) summary.erase("memory");
  return summary;
}

// What a finished run leaves. The state holds what it would decide by, if it went on.
struct Left {
  std::string metrics, last, best;
  Json summary, state;
  bool operator==(const Left&) const = default;
  // Which parts of it another one has otherwise.
  std::string differs(const Left& other) const {
    std::string names;
    const auto add = [&](const char* name, bool differs) {
      if (differs) names += fmt::format(" {}", name);
    };
    add("metrics", metrics != other.metrics);
    add("last", last != other.last);
    add("best", best != other.best);
    if (summary != other.summary) names += " summary: " + Json::diff(summary, other.summary).dump();
    if (state != other.state) names += " state: " + Json::diff(state, other.state).dump();
    return names;
  }
};

Left left_by(const std::string& folder, const Json& summary, bool offload) {
  const std::string state = folder + "/checkpoint/state.safetensors";
  const auto file = data::SafetensorsFile::open(state);
  Json run = Json::parse(file.metadata().at("run"));
  for (const std::string& name : file.names())
    if (name.starts_with("learned/")) run[name] = file.read(name).to_vector();
  run.erase("offload");
  if (offload) run.erase("memory");
  return {read_file(folder + "/metrics.jsonl"), read_file(folder + "/checkpoint/last.safetensors"),
          read_file(folder + "/checkpoint/best.safetensors"), without_time(summary, offload), run};
}

// Trains without a stop, then again from the checkpoint of each step of `cuts`; the steps after
// which a cut made a difference, and what differs.
std::vector<std::string> differences(const std::string& data, const Variant& variant, int64_t steps,
                                     const std::function<bool(int64_t)>& cuts, int& resumes) {
  const TempFolder folder;
  if (data == "sentences") write_sentences(folder);
  const Config config = config_of(folder, data, variant, steps);
  const std::string whole = folder / "whole";
  std::vector<int64_t> at;
  TrainOptions options;
  options.out = whole;
  options.quiet = true;
  options.saved = [&](int64_t step) {
    if (!cuts(step) || fs::exists(folder / std::to_string(step))) return;
    fs::copy(whole, folder / std::to_string(step), fs::copy_options::recursive);
    at.push_back(step);
  };
  const Left expected = left_by(whole, TrainingRun(config, options).run(), variant.offload);
  REQUIRE(expected.metrics.find("\"type\":\"tensors\"") != std::string::npos);
  const bool has_memory = expected.metrics.find("\"type\":\"memory\"") != std::string::npos;
  REQUIRE(has_memory != variant.offload);
  options.saved = {};
  options.resume = true;
  std::vector<std::string> wrong;
  for (const int64_t step : at) {
    options.out = folder / std::to_string(step);
    const Json summary = TrainingRun(config, options).run();
    ++resumes;
    const Left left = left_by(options.out, summary, variant.offload);
    if (left != expected) wrong.push_back(fmt::format("{}:{}", step, left.differs(expected)));
  }
  return wrong;
}

void check(const std::string& data, const Variant& variant, int64_t steps,
           const std::function<bool(int64_t)>& cuts, int& resumes, int& wrong) {
  CAPTURE(data);
  CAPTURE(std::string(variant.name));
  const std::vector<std::string> found = differences(data, variant, steps, cuts, resumes);
  wrong += static_cast<int>(found.size());
  INFO("steps after which a cut makes a difference: " << fmt::format("{}", fmt::join(found, "; ")));
  CHECK(found.empty());
}

}  // namespace

// Each variant once, with one kind of data after the other: cut before and after a batch of another
// shape, and in a later epoch.
TEST_CASE("runs that are cut go on to the same bits, also where batches change in shape") {
  int resumes = 0, wrong = 0;
  const size_t variants = std::size(kVariants);
  for (size_t i = 0; i < variants; ++i)
    check(
        kData[i % kData.size()], kVariants[i], 12,
        [](int64_t step) { return step == 4 || step == 6 || step == 11; }, resumes, wrong);
  for (const char* data : {"images", "mixed", "sentences", "node"})  // what differed most often
    check(
        data, kVariants[5], 12, [](int64_t step) { return step % 5 == 1; }, resumes, wrong);
  for (const char* data : {"images", "mixed", "sentences"})
    check(
        data, kBySample, 12, [](int64_t step) { return step == 4 || step == 6 || step == 11; },
        resumes, wrong);
  CHECK(resumes >= 3 * static_cast<int>(variants));
}

// The runs here are processes, and one of them is killed.
TEST_CASE("a process killed after its first checkpoint goes on to the same bits") {
  const TempFolder folder;
  write_sentences(folder);
  for (const auto& [data, variant] : {std::pair{"images", 5}, std::pair{"edge", 25}}) {
    CAPTURE(std::string(data));
    Json config = to_json(config_of(folder, data, kVariants[variant], 24));
    write_file(folder / "c.json", config.dump());
    const std::string train = fmt::format("train {} --resume", folder / "c.json");
    REQUIRE(frugal(train + " --out " + folder / "whole").status == 0);
    REQUIRE(cut_run(train, folder / "cut", "checkpoint/state.safetensors", 0, SIGKILL) ==
            128 + SIGKILL);
    CHECK(!fs::exists(folder / "cut/summary.json"));
    REQUIRE(frugal(train + " --out " + folder / "cut").status == 0);
    const auto left = [&](const std::string& out) {
      return left_by(folder / out, Json::parse(read_file(folder / out + "/summary.json")),
                     kVariants[variant].offload);
    };
    CHECK((left("cut") == left("whole")));
    fs::remove_all(folder / "cut");
    fs::remove_all(folder / "whole");
  }
}

TEST_CASE("resume campaign: every policy, every kind of batch, cut at each step" *
          doctest::skip()) {
  int resumes = 0, wrong = 0;
  const char* only = std::getenv("FRUGAL_CAMPAIGN_DATA");  // one kind of data
  for (const std::string& data : kData) {
    if (only != nullptr && data != only) continue;
    for (const Variant& variant : kVariants)
      check(
          data, variant, kSteps, [](int64_t) { return true; }, resumes, wrong);
    if (data == "images" || data == "sentences")
      check(
          data, kBySample, kSteps, [](int64_t) { return true; }, resumes, wrong);
    MESSAGE(fmt::format("up to {}: {} resumed runs, {} differ", data, resumes, wrong));
  }
  MESSAGE(fmt::format("{} resumed runs, {} differ", resumes, wrong));
}

}  // namespace frugal::apps
