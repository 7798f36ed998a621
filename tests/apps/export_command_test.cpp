// `frugal export`: what it writes and prints, and what it refuses.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "apps/cli/export_inputs.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "export/onnx_file.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// A run of a second, with a checkpoint.
std::string trained(const TempFolder& folder) {
  write_file(folder / "config.json", kTinyConfig);
  const std::string run = folder / "run";
  const Ran ran = frugal("train " + folder / "config.json" + " --set train.epochs=1 --out " + run);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return run;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a run's weights come back from safetensors in every dtype") {
  const TempFolder folder;
  const std::string run = trained(folder);
  const std::string eval = "eval " + run + "/config.json --json --checkpoint ";
  const Ran whole = frugal(eval + run + "/checkpoint/last.safetensors");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  write_file(run + "/classes.json", R"(["a", "b", "c"])");
  for (const std::string dtype : {"f32", "f16", "bf16"}) {
    CAPTURE(dtype);
    const std::string out = folder / dtype + ".safetensors";
    const Ran ran =
        frugal("export " + run + " --weights last --dtype " + dtype + " --output " + out);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    CHECK(contains(ran.out, "safetensors, " + dtype + ", 6 tensors"));
    CHECK(contains(ran.out, "checkpoint/last.safetensors"));
    const auto file = data::SafetensorsFile::open(out);
    CHECK(name_of(file.info("fc1.weight").dtype) == dtype);
    CHECK(file.metadata().at("format") == "pt");
    CHECK(file.metadata().at("model") == "mlp");
    CHECK(file.metadata().at("classes") == R"(["a","b","c"])");
    const Ran again = frugal(eval + out);
    REQUIRE_MESSAGE(again.status == 0, again.err);
    const double before = Json::parse(whole.out)["loss"], after = Json::parse(again.out)["loss"];
    CHECK(after == doctest::Approx(before).epsilon(dtype == "f32" ? 1e-12 : 0.02));
  }
}

TEST_CASE("options that contradict each other are mistakes") {
  const TempFolder folder;
  const std::string run = trained(folder), file = run + "/checkpoint/last.safetensors";
  const std::string config = folder / "config.json", out = " --output " + folder / "x.safetensors";
  check_fails(frugal("export " + run + " --random" + out), 2,
              {"--random: expected a configuration"});
  check_fails(frugal("export " + config + " --random --checkpoint " + file + out), 2,
              {"--checkpoint excludes --random"});
  const std::string both = " --weights last --checkpoint " + file;
  for (const std::string& command : {"export " + run + both + out, "eval " + run + both}) {
    CAPTURE(command);
    check_fails(frugal(command), 2, {"--weights", "excludes", "--checkpoint"});
  }
  CHECK(!std::filesystem::exists(folder / "x.safetensors"));
}

TEST_CASE("export refuses weights that are not numbers") {
  const TempFolder folder;
  const std::string run = trained(folder), path = run + "/checkpoint/last.safetensors";
  {
    const auto file = data::SafetensorsFile::open(path);
    const data::Metadata metadata = file.metadata();
    auto tensors = file.read_all();
    for (auto& [name, tensor] : tensors)
      if (name == "fc1.weight") tensor.mut<float>()[1] = std::nanf("");
    data::write_safetensors(path, tensors, metadata);
  }
  const std::string out = folder / "out.safetensors";
  const Ran ran = frugal("export " + run + " --weights last --output " + out);
  CHECK(ran.status == 1);
  CHECK(contains(ran.err, "got nan at element 1 of \"fc1.weight\""));
  CHECK(!std::filesystem::exists(out));
}

TEST_CASE("export says what it wrote") {
  const TempFolder folder;
  const std::string run = trained(folder);
  const Ran ran = shell("cd " + folder / "" + " && FRUGAL export run --json --format safetensors");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json said = Json::parse(ran.out);
  CHECK(said["file"] == "mlp.safetensors");
  CHECK(said["checkpoint"] == "run/checkpoint/best.safetensors");
  CHECK(said["tensors"] == 6);
}

TEST_CASE("export says what an ONNX file has, and writes an example" *
          doctest::skip(!exports::can_write_onnx())) {
  const TempFolder folder;
  trained(folder);
  const Ran onnx =
      shell("cd " + folder / "" + " && FRUGAL export run --output a.onnx --example b.st");
  REQUIRE_MESSAGE(onnx.status == 0, onnx.err);
  CHECK(contains(onnx.out, "a.onnx: ONNX, opset 13, 6 nodes"));
  CHECK(contains(onnx.out, "input  input            f32 [batch, 1, 6, 6]"));
  CHECK(contains(onnx.out, "output logits           f32 [batch, 3]"));
  CHECK(longest_line(onnx.out) <= 80);
  const auto example = data::SafetensorsFile::open(folder / "b.st");
  CHECK(example.info("input").shape == Shape{5, 1, 6, 6});
  CHECK(example.info("logits").shape == Shape{5, 3});
}

TEST_CASE("an encoder's ONNX file reads what its data have, of a run as of a configuration" *
          doctest::skip(!exports::can_write_onnx())) {
  const TempFolder folder;
  for (const auto& [name, wanted] :
       {std::pair{std::string("bert_tiny"), "input_ids attention_mask token_type_ids"},
        std::pair{std::string("distilbert_base"), "input_ids attention_mask"}}) {
    CAPTURE(name);
    write_file(folder / "c.json",
               fmt::format(R"({{"model": {{"name": "{}", "layers": 1, "width": 16,
        "heads": 2, "feed_forward": 16, "vocab_size": 30}}, "threads": 1, "train": {{"steps": 1}},
        "data": {{"name": "random_tokens", "max_length": 8, "batch_size": 4, "train_samples": 8,
                 "test_samples": 4, "classes": 2}}}})",
                           name));
    const std::string run = folder / name, weights = run + "/checkpoint/last.safetensors";
    const Ran trained = frugal("train " + folder / "c.json" + " --quiet --out " + run);
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    for (const std::string& source : {run, folder / "c.json" + " --checkpoint " + weights}) {
      const Ran ran =
          frugal("export " + source + " --json --overwrite --output " + folder / "x.onnx");
      REQUIRE_MESSAGE(ran.status == 0, ran.err);
      std::vector<std::string> inputs;
      const Json said = Json::parse(ran.out);
      for (const Json& input : said["inputs"]) inputs.push_back(input["name"].get<std::string>());
      CHECK(fmt::format("{}", fmt::join(inputs, " ")) == wanted);
    }
  }
}

// On meta nothing is computed: whether each op of each network has a form in ONNX shows there.
TEST_CASE("every network of the zoo has a form in ONNX") {
  const TempFolder folder;
  const std::map<Family, std::string> data = {
      {Family::images, R"({"name": "random", "shape": [224, 224, 3]})"},
      {Family::segmentation, R"({"name": "random_masks", "shape": [64, 96, 3]})"},
      {Family::detection, R"({"name": "random_boxes", "shape": [64, 96, 3]})"},
      {Family::encoder, R"({"name": "random_tokens"})"},
      {Family::decoder, R"({"name": "random_tokens"})"},
      {Family::graph, R"({"name": "random_graph"})"}};
  for (const std::string& name : model_names()) {
    CAPTURE(name);
    if (name == "fasterrcnn_resnet50_fpn") continue;  // the command refuses it
    ModelConfig model;
    model.name = name;
    std::string modules;
    Family family = Family::images;
    if (name == "sequential")
      modules =
          R"(, "modules": [{"conv2d": {"out_channels": 8, "kernel_size": 16, "stride": 16}}, "batch_norm", "relu", "flatten", {"linear": 10}])";
    else
      family = family_of(model);
    write_file(folder / "c.json",
               fmt::format(R"({{"model": {{"name": "{}"{}}}, "data": {}, "device": "meta"}})", name,
                           modules, data.at(family)));
    Config config = load_config(folder / "c.json");
    resolve(config);
    const BatchSpec spec = batch_spec(config);
    const auto network = make_model(config, spec, kMeta);
    const exports::OnnxInputs real = export_inputs(spec);
    const exports::OnnxInputs inputs{real.sizes, [&](const std::vector<int64_t>& sizes) {
                                       NamedTensors all = real.make(sizes);
                                       for (auto& [input, tensor] : all)
                                         tensor =
                                             Tensor::empty(tensor.shape(), tensor.dtype(), kMeta);
                                       return all;
                                     }};
    const exports::OnnxGraph graph = exports::to_onnx(*network, inputs);
    CHECK(graph.nodes.size() > 3);
    const bool boxes = family == Family::detection;  // beside classes, 4 numbers for each anchor
    const bool views = is_self_supervised(config.model);  // the features of resnet50
    CHECK(graph.outputs.at(0).shape.back().size ==
          (views ? 2048 : *config.model.num_classes + (boxes ? 4 : 0)));
    // All weights are there, except those from which other tensors were computed.
    std::set<std::string> written;
    for (const auto& [initializer, tensor] : graph.initializers) written.insert(initializer);
    std::vector<std::string> missing;
    for (const Module::NamedParameter& p : network->parameters())
      if ((!views || p.name.starts_with("trunk.")) && !written.contains(p.name))
        missing.push_back(p.name);
    CAPTURE(fmt::format("{}", fmt::join(missing, " ")));
    const bool makes_others = name.starts_with("vit") || name.starts_with("swin");
    // RoBERTa has one kind of token, whose row is the same for all inputs.
    std::erase(missing, "roberta.embeddings.token_type_embeddings.weight");
    CHECK((missing.empty() || (makes_others && missing.size() < 30)));
  }
}

TEST_CASE("export refuses what would surprise") {
  const TempFolder folder;
  const std::string run = trained(folder), config = folder / "config.json";
  const std::string here = "cd " + folder / "" + " && FRUGAL export ";
  const auto refused = [&](const std::string& arguments, const std::string& why, int status = 2) {
    CAPTURE(arguments);
    const Ran ran = shell(here + arguments);
    CHECK(ran.status == status);
    CHECK_MESSAGE(contains(ran.err, why), ran.err);
    CHECK(ran.out == "");
  };
  refused("run --format onxx", "onnx");
  refused("run", "expected --format onnx, safetensors, hf");
  refused("run --output a.pt", "expected --format onnx, safetensors, hf");
  refused("config.json --format safetensors", "--random exports random weights");
  refused("run --format onnx --dtype f16", "--dtype: expected f32 with --format onnx, got f16");
  refused("run --format safetensors --example a", "--example: expected --format onnx");
  refused("run --format safetensors --dtype f8", "f16");
  write_file(folder / "mine.safetensors", "precious");
  refused("run --output mine.safetensors", "--overwrite replaces it");
  CHECK(read_file(folder / "mine.safetensors") == "precious");
  CHECK(shell(here + "run --output mine.safetensors --overwrite").status == 0);
  CHECK(read_file(folder / "mine.safetensors") != "precious");
  // A run is enough: its data may be gone.
  Json stored = Json::parse(read_file(run + "/config.json"));
  stored["data"]["name"] = "cifar10";
  stored["data"]["dir"] = "/nowhere";
  for (const char* key : {"shape", "classes"}) stored["data"].erase(key);
  write_file(run + "/config.json", stored.dump());
  CHECK(shell(here + "run --output c.safetensors").status == 0);
  REQUIRE(run_shell("mkdir " + folder / "empty").status == 0);
  refused("empty --format safetensors", "config.json");
  REQUIRE(run_shell("rm -r " + run + "/checkpoint").status == 0);
  refused("run --format safetensors --output b.safetensors", "has written no checkpoint", 1);
  CHECK(shell(here + "config.json --random --format safetensors").status == 0);
  CHECK(shell(here + "run --output none/a.safetensors --random").status != 0);
}

}  // namespace
}  // namespace frugal::apps
