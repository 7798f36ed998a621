// `frugal plan`: levels side by side, what fits, what takes most; and all of it beside real steps.
#include <doctest/doctest.h>

#include <cmath>
#include <sstream>

#include "apps/cli/plan_explain.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "apps/json.h"
#include "ops/precision.h"
#include "tests/apps/run.h"
#include "tests/data/formats/arrays.h"

namespace frugal::apps {
namespace {

constexpr const char* kResNet20 = R"({"model": {"name": "resnet20"},
    "data": {"name": "random", "shape": [32, 32, 3], "batch_size": 32, "train_samples": 64,
             "workers": 0}})";

const Json& row_named(const Json& levels, const std::string& name) {
  for (const Json& level : levels)
    if (level.at("name") == name) return level;
  throw Error("no row " + name);
}

double share_off(int64_t planned, int64_t real) {
  return std::abs(static_cast<double>(planned - real)) / static_cast<double>(real);
}

int64_t peak_of(const Json& memory) { return memory.at("peak_bytes").get<int64_t>(); }

void check_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, line);
}

int64_t row_peak(const std::string& command, const char* list, const std::string& name) {
  const Ran ran = frugal(command);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return peak_of(row_named(Json::parse(ran.out).at(list), name).at("memory"));
}

int64_t profiled_peak(const std::string& command) {
  const Ran ran = frugal(command);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return peak_of(Json::parse(ran.out).at("memory"));
}

// 56 pictures [128, 128, 48] of 4 classes, of which 48 train. They are read faster than drawn.
std::string grey_pictures(const std::string& path) {
  constexpr int64_t kCount = 56;
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < kCount; ++i) classes.push_back(i % 4);
  write_file(path, frugal_test::zip(
                       {{"input.npy", frugal_test::npy("|u1", "(56, 128, 128, 48)",
                                                       std::string(kCount * 128 * 128 * 48, 'g'))},
                        {"target.npy", frugal_test::npy_of("<i8", classes)}}));
  return path;
}

TEST_CASE("plan, profile and bench step take what training takes: eight networks") {
  const TempFolder folder;
  const std::string images = R"("data": {"name": "random", "shape": [32, 32, 3], "classes": 10,
      "batch_size": 8, "train_samples": 64, "test_samples": 8, "workers": 0})",
                    // Four batches meet nearly all of 500 words.
      tokens = R"("data": {"name": "random_tokens", "max_length": 64, "batch_size": 16,
                           "train_samples": 128})",
                    adam = R"("name": "adamw", "lr": 0.001)", sgd = R"("name": "sgd", "lr": 0.01)",
                    small = R"(, "compression": {"advanced": {"min_elements": 1024}})";
  struct Network {
    std::string text, optimizer, more = {};
    int parts = 4;  // with clip_norm
  };
  const Network networks[] = {
      {R"("model": {"name": "resnet20"}, )" + images, sgd},
      {R"("model": {"name": "resnet18", "stem": "cifar", "width": 16}, )" + images, sgd},
      {R"("model": {"name": "densenet121"}, )" + images, sgd},
      {R"("model": {"name": "vit_b_16", "layers": 2, "width": 96, "heads": 4}, )" + images, adam,
       small},
      {R"("model": {"name": "bert_tiny", "vocab_size": 500}, )" + tokens, adam},
      {R"("model": {"name": "gpt2", "layers": 2, "width": 96, "heads": 4, "vocab_size": 500}, )" +
           tokens,
       adam},
      {R"("model": {"name": "gcn", "layers": 6, "width": 64}, "data": {"name": "random_graph",
          "nodes": 2000, "edges": 6000, "features": 64})",
       adam, small},
      // Its input takes 72 MiB, so steps release it. 16 channels and more are packed fast.
      {R"("model": {"name": "sequential", "modules": [
          {"conv2d": {"out_channels": 8, "kernel_size": 8, "stride": 8}}, "relu",
          {"max_pool2d": 4}, "flatten", {"linear": 4}]}, "data": {"name": "tensors", "dir": ")" +
           grey_pictures(folder / "grey.npz") + R"(", "split": [0.86, 0.07], "batch_size": 24,
          "test_batch_size": 4, "workers": 0})",
       sgd, "", 2}};
  const std::string variant = " --only --variant 'this config: compression.recipes=true' ";
  for (const Network& network : networks)
    for (const bool in_backward : {false, true}) {
      CAPTURE(network.text);
      CAPTURE(in_backward);
      const std::string optim =
          network.optimizer + (in_backward ? "" : R"(, "clip_norm": 0.5)");  // the default, or not
      // A graph is the only batch of its epoch, so there is nothing to accumulate.
      const bool is_graph = network.text.find("gcn") != std::string::npos;
      const int parts = in_backward || is_graph ? 1 : network.parts;
      const std::string train = is_graph ? R"("epochs": 2)" : R"("steps": 2)";
      const std::string path = folder / "c.json";
      write_file(path, fmt::format(R"({{{}, "optim": {{{}}}, "train": {{{}, "gradient_accumulation":
          {}}}, "threads": 2{}}})",
                                   network.text, optim, train, parts, network.more));
      const std::string out = folder / (in_backward ? "in_backward" : "accumulated");
      const Ran ran = frugal("train " + path + " --quiet --overwrite --out " + out);
      REQUIRE_MESSAGE(ran.status == 0, ran.err);
      const int64_t trained = peak_of(Json::parse(read_file(out + "/summary.json")).at("memory"));
      const int64_t planned = row_peak("plan --json " + path, "levels", "this config");
      CHECK(share_off(planned, trained) < 0.02);
      CHECK(profiled_peak("profile --json --set device=meta " + path) == planned);
      CHECK(row_peak("bench step --json --set device=meta" + variant + path, "variants",
                     "this config") == planned);
      // Beside the data of training a run holds the labels of those for validation and for the
      // test.
      const int64_t labels = is_graph ? 2 * 2000 * 8 : 0;
      const int64_t profiled = profiled_peak("profile --json --steps 1 " + path);
      const int64_t benched =
          row_peak("bench step --json --repeats 1" + variant + path, "variants", "this config");
      if (network.text.find("tokens") == std::string::npos) {
        CHECK(profiled == trained - labels);
        CHECK(benched == trained - labels);
      } else {  // the words of a batch, which have gradients, are others in each step
        CHECK(share_off(profiled, trained) < 0.005);
        CHECK(share_off(benched, trained) < 0.005);
      }
    }
}

TEST_CASE("a plan with a file for activations counts the file's buffer, as a run does") {
  const TempFolder folder;
  const std::string path = folder / "c.json", out = folder / "run";
  write_file(path, fmt::format(R"({{"model": {{"name": "resnet20"}}, "threads": 1,
      "data": {{"name": "random", "shape": [32, 32, 3], "batch_size": 8, "train_samples": 16,
               "test_samples": 8, "workers": 0}},
      "train": {{"epochs": 1}}, "compression": {{"bits": 4, "offload": {},
      "advanced": {{"offload_window": 0}}}}}})",
                               Json(folder / "").dump()));
  const Ran ran = frugal("train " + path + " --quiet --out " + out);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const int64_t trained = peak_of(Json::parse(read_file(out + "/summary.json")).at("memory"));
  const int64_t planned = row_peak("plan --json " + path, "levels", "this config");
  CHECK(share_off(planned, trained) < 0.02);
  CHECK(profiled_peak("profile --json --set device=meta " + path) == planned);
}

TEST_CASE("a step takes what its plan says, however many targets the data have") {
  const TempFolder folder;
  const std::string out = folder / "run";
  std::string table = "a,b,target\n";
  std::vector<float> inputs, answers;
  for (int i = 0; i < 5000; ++i) {
    const double x = i % 97 / 97.0;
    table += fmt::format("{},{},{}\n", x, i % 31, 2 * x + 0.5);
    inputs.insert(inputs.end(), {static_cast<float>(x), 1});
    for (const int bit : {1, 2, 4}) answers.push_back(static_cast<float>((i & bit) != 0));
  }
  write_file(folder / "values.csv", table);
  write_file(
      folder / "labels.npz",
      frugal_test::zip(
          {{"input.npy", frugal_test::npy("<f4", "(5000, 2)", frugal_test::raw_bytes(inputs))},
           {"target.npy", frugal_test::npy("<f4", "(5000, 3)", frugal_test::raw_bytes(answers))}}));
  for (Json data :
       {Json{{"name", "csv"}, {"dir", folder / "values.csv"}},
        Json{{"name", "tensors"}, {"layout", "rows"}, {"dir", folder / "labels.npz"}}}) {
    CAPTURE(data.dump());
    data.update({{"batch_size", 32}, {"workers", 0}});
    const std::string path = folder / "c.json";
    write_file(path, Json{{"model", {{"name", "mlp"}, {"hidden", {32}}}},
                          {"data", data},
                          {"train", {{"steps", 4}}}}
                         .dump());
    const Ran ran = frugal("train " + path + " --quiet --overwrite --out " + out);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const int64_t trained = peak_of(Json::parse(read_file(out + "/summary.json")).at("memory"));
    CHECK(share_off(row_peak("plan --json " + path, "levels", "this config"), trained) < 0.02);
  }
}

TEST_CASE("a step of a whole graph has the one batch of its epoch, whatever it may accumulate") {
  const TempFolder folder;
  const std::string path = folder / "c.json", out = folder / "run";
  write_file(path, R"({"model": {"name": "gcn", "layers": 6, "width": 64},
      "data": {"name": "random_graph", "nodes": 2000, "edges": 6000, "features": 64},
      "optim": {"name": "adamw", "lr": 0.001}, "threads": 2,
      "train": {"epochs": 3, "gradient_accumulation": 4},
      "compression": {"advanced": {"min_elements": 1024}}})");
  const Ran ran = frugal("train " + path + " --quiet --overwrite --out " + out);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const int64_t trained = peak_of(Json::parse(read_file(out + "/summary.json")).at("memory"));
  const auto planned = [&](const std::string& sets) {
    return row_peak("plan --json " + path + sets, "levels", "this config");
  };
  CHECK(planned("") == planned(" --set train.gradient_accumulation=1"));
  CHECK(share_off(planned(""), trained) < 0.02);
  CHECK(profiled_peak("profile --json --set device=meta " + path) == planned(""));
  constexpr int64_t kLabelBytes = 2 * 2000 * 8;  // those for validation and for the test
  CHECK(profiled_peak("profile --json --steps 1 " + path) == trained - kLabelBytes);
  CHECK(row_peak("bench step --json --repeats 1 --only "
                 "--variant 'this config: compression.recipes=true' " +
                     path,
                 "variants", "this config") == trained - kLabelBytes);
}

TEST_CASE("a plan of a graph counts what its data hold: features, all labels and masks") {
  const TempFolder folder;
  const std::string path = folder / "c.json", out = folder / "run";
  // Few features, so labels and masks are 5 % of the peak and more; and GAT, whose first layer
  // would write over features that nobody holds.
  // In bf16, kernels of GAT and of the largest neighbours hold copies in f32.
  const char* const half = ops::processor_multiplies_bf16() ? "bf16" : "bf16_in_f32";
  struct Case {
    const char *model, *precision;
    int features;
  };
  for (const auto& [model, precision, features] :
       {Case{R"("name": "gcn")", "f32", 4}, Case{R"("name": "gat")", "f32", 64},
        Case{R"("name": "gcn")", half, 64}, Case{R"("name": "gat")", half, 64},
        Case{R"("name": "sage", "aggregation": "max")", half, 64}}) {
    CAPTURE(model);
    CAPTURE(precision);
    write_file(path, fmt::format(R"({{"model": {{{}, "layers": 2, "width": 16}},
      "data": {{"name": "random_graph", "nodes": 2000, "edges": 3000, "features": {}}},
      "optim": {{"name": "adamw", "lr": 0.001}}, "threads": 1, "precision": "{}",
      "train": {{"epochs": 2}}}})",
                                 model, features, precision));
    const Ran ran = frugal("train " + path + " --quiet --overwrite --out " + out);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const int64_t trained = peak_of(Json::parse(read_file(out + "/summary.json")).at("memory"));
    CHECK(share_off(row_peak("plan --json " + path, "levels", "this config"), trained) < 0.01);
  }
}

// Here the parts are all of the graph, or nearly: the least that such a plan may have.
TEST_CASE("a plan of parts of a graph has the whole graph as batch, and as what the data hold") {
  const TempFolder folder;
  const std::string path = folder / "c.json", out = folder / "run";
  for (const char* const data :
       {R"("sampler": "neighbours", "fan_outs": [100, 100], "batch_size": 500)",
        R"("sampler": "clusters", "clusters": 5, "batch_size": 5)",
        R"("sampler": "random_walk", "sampler_batches": 3, "batch_size": 300, "walk_length": 8)"}) {
    CAPTURE(data);
    write_file(path, fmt::format(R"({{"model": {{"name": "gcn", "layers": 2, "width": 16}},
      "data": {{"name": "random_graph", "nodes": 500, "edges": 2000, "features": 16, "classes": 3,
                {}}}, "threads": 1, "train": {{"epochs": 2}}}})",
                                 data));
    const Ran ran = frugal("train " + path + " --quiet --overwrite --out " + out);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const int64_t trained = peak_of(Json::parse(read_file(out + "/summary.json")).at("memory"));
    const int64_t planned = row_peak("plan --json " + path, "levels", "this config");
    CAPTURE(trained);
    CAPTURE(planned);
    CHECK(static_cast<double>(planned) > 0.98 * static_cast<double>(trained));
    CHECK(static_cast<double>(planned) < 1.15 * static_cast<double>(trained));
  }
  const std::string said = frugal("plan " + path).out;
  CHECK(has(said, "batches of data.sampler=random_walk are counted as the whole graph"));
  CHECK(Json::parse(frugal("plan --json " + path).out).at("whole_graph") == true);
}

TEST_CASE("a plan of policy acgc has the first step, and looks at gradients as often as the run") {
  const TempFolder folder;
  const std::string path = folder / "c.json", out = folder / "run";
  const auto planned_and_trained = [&](const std::string& model, const std::string& more) {
    write_file(path, "{" + model + R"(, "threads": 2, "compression": {"policy": "acgc", )" + more);
    const Ran ran = frugal("train " + path + " --quiet --overwrite --out " + out);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return std::pair(row_peak("plan --json " + path, "levels", "this config"),
                     peak_of(Json::parse(read_file(out + "/summary.json")).at("memory")));
  };
  const std::string pictures = R"("model": {"name": "resnet20"}, "optim": {"name": "sgd"},
      "data": {"name": "random", "shape": [32, 32, 3], "classes": 10, "batch_size": 64,
               "train_samples": 192, "test_samples": 8, "workers": 0})";
  // Later steps take fewer bits than the first one, which is known to the byte.
  for (const char* codec : {"fixed_z", "predicted"})
    for (const char* precision : {"f32", "bf16_in_f32"}) {
      CAPTURE(codec);
      CAPTURE(precision);
      const auto [planned, trained] = planned_and_trained(
          pictures, fmt::format(R"("acgc": {{"count": "expected", "codec": "{}"}}}},
                                   "precision": "{}", "train": {{"steps": 3}}}})",
                                codec, precision));
      CHECK(planned == trained);
    }
  // Beside the small gradients of adapters it counts what a look takes. The widths of later steps
  // follow from values, and are equal in these runs but for what two more steps change.
  const std::string adapters = R"("model": {"name": "decoder", "layers": 2, "width": 128,
      "heads": 4, "kv_heads": 2, "max_positions": 64, "vocab_size": 200},
      "adapter": {"type": "lora", "rank": 16, "alpha": 32, "targets": "all-linear"},
      "data": {"name": "random_tokens", "max_length": 64, "batch_size": 8, "train_samples": 16},
      "optim": {"name": "adamw", "lr": 0.001})";
  const auto look = [&](const std::string& sets) {
    return planned_and_trained(adapters, R"("acgc": {"interval": 3}}, "train": )" + sets + "}");
  };
  const auto once = look(R"({"steps": 3})"), twice = look(R"({"steps": 4})");
  const double more = static_cast<double>(twice.first - once.first);
  CHECK(more > 0.05 * static_cast<double>(once.first));
  CHECK(more / static_cast<double>(twice.second - once.second) == doctest::Approx(1).epsilon(0.1));
  CHECK(look(R"({"epochs": 1})").first == once.first);  // two steps
  const Ran text = frugal("plan " + path), json = frugal("plan --json " + path);
  CHECK(text.out.find("widths that follow from values: ") != std::string::npos);
  check_lines(text.out);
  CHECK(Json::parse(json.out).at("widths").get<std::string>().find(
            "; 8.00 bits for each value in the first step") != std::string::npos);
}

TEST_CASE("frugal plan shows levels, the largest that fits and what takes most, in 80 columns") {
  const TempFolder folder;
  write_file(folder / "c.json", kResNet20);
  const std::string plan = "plan " + folder / "c.json";
  const Ran table = frugal(plan + " --memory 1GiB");
  REQUIRE_MESSAGE(table.status == 0, table.err);
  for (const char* name : {"this config", "whole", "lossless", "2 bits", "smallest",
                           "4 bits, recomputed", "4 bits, offload", "recommended: --set"})
    CHECK_MESSAGE(table.out.find(name) != std::string::npos, name);
  check_lines(table.out);
  const Json levels = Json::parse(frugal(plan + " --memory 1GiB --json").out).at("levels");
  CHECK(row_named(levels, "this config").at("memory") == row_named(levels, "4 bits").at("memory"));
  const auto saved = [&](const char* name) {
    return row_named(levels, name).at("memory").at("activation_bytes").get<int64_t>();
  };
  CHECK(saved("whole") > saved("4 bits"));  // tests/train/planning/ways_test.cpp compares the rows

  const Ran most = frugal(plan + " --memory 64MiB --max batch");
  REQUIRE_MESSAGE(most.status == 0, most.err);
  CHECK(most.out.find("the largest data.batch_size whose step fits into 64.0 MiB") !=
        std::string::npos);
  check_lines(most.out);
  const Json largest = Json::parse(frugal(plan + " --memory 64MiB --max batch --json").out);
  CHECK(largest.at("key") == "data.batch_size");
  const auto batch = [&](const char* name) {
    return row_named(largest.at("levels"), name).at("largest").get<int64_t>();
  };
  CHECK(batch("4 bits") > batch("whole"));
  CHECK(batch("2 bits") > batch("4 bits"));
  CHECK(batch("whole, recomputed") > batch("whole"));
  CHECK(Json::parse(frugal(plan + " --memory 1e8 --max batch --json").out).at("memory_bytes") ==
        100'000'000);
  const Json none = Json::parse(frugal(plan + " --memory 1MiB --max batch --json").out);
  CHECK(row_named(none.at("levels"), "whole").at("largest").is_null());

  const Ran explained = frugal(plan + " --explain");
  REQUIRE_MESSAGE(explained.status == 0, explained.err);
  for (const char* text : {"layer1.", "conv2d", "other tensors", "compression.bits=2: "})
    CHECK_MESSAGE(explained.out.find(text) != std::string::npos, text);
}

TEST_CASE("an explanation accounts for every saved byte") {
  for (const char* sets : {"compression.bits=0 compression.recipes=false", "compression.bits=0",
                           "compression.bits=4", "train.checkpointing=true"}) {
    CAPTURE(sets);
    Json document = Json::parse(kResNet20);
    std::istringstream words(sets);
    for (std::string word; words >> word;) apply_set(document, word);
    Config config = parse_config(document);
    resolve(config);
    const train::PlannedRun run = planned_run(config);
    train::WaySteps steps(run);
    const Explanation found = explain_step(config, run, steps);
    CHECK(found.memory.saved() == steps.step(own_way(run)).saved());
    CHECK(found.memory.peak == steps.step(own_way(run)).peak);
    REQUIRE(found.largest.size() >= 10);
    int64_t listed = found.other_bytes, by_op = 0;
    for (const auto& tensor : found.largest) {
      CHECK(*tensor.record.stored_bytes > 0);
      CHECK_FALSE(tensor.record.layer.empty());
      listed += *tensor.record.stored_bytes;
    }
    for (const auto& op : found.ops) by_op += op.bytes;
    CHECK(listed == by_op);
    CHECK(found.rest == found.memory.saved() - listed);
    CHECK(std::abs(found.rest) <= found.memory.saved() / 100);
    CHECK_FALSE(found.largest.front().lower.empty());
  }
}

TEST_CASE("wrong uses of plan") {
  const TempFolder folder;
  write_file(folder / "c.json", kResNet20);
  const std::string plan = "plan " + folder / "c.json";
  const std::string long_number = " --memory " + std::string(400, '9');
  for (const auto& [arguments, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {" --max batch", "--memory"},
           {long_number.c_str(), "--memory: expected bytes, got a number too long: \"999"},
           {" --memory 1GiB --max depth", "depth"},
           {" --memory much --max batch", "--memory"},
           {" --memory 1.5e0", "--memory"},
           {" --memory -1e9", "--memory"},
           {" --memory ''", "--memory"},
           {" --memory 1GiB --max batch --explain", "--explain"},
           {" --memory 1GiB --max width --set model.name=densenet121", "model.width"},
           {" --memory 1GiB --max resolution --set data.name=cifar10 --set data.shape=null",
            "data.shape"},
           {" --explain --set compression.memory_budget=1/4", "compression.memory_budget"},
           {" --set model.layers=21", "model.layers"},
           {" --set model.name=resnet50 --set model.layers=51", "model.layers"},
           {" --set model.name=resnet50 --set model.layers=47", "model.layers"}}) {
    const Ran ran = frugal(plan + arguments);
    CHECK_MESSAGE(ran.status == 2, arguments, ": ", ran.out, ran.err);
    CHECK_MESSAGE((ran.out + ran.err).find(said) != std::string::npos, arguments, ": ", ran.err);
  }
}

}  // namespace
}  // namespace frugal::apps
