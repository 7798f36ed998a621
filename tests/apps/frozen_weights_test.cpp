// model.frozen: runs with packed weights from a configuration to files.
#include <doctest/doctest.h>

#include <csignal>

#include "apps/json.h"
#include "data/formats/safetensors.h"
#include "models/matrix_weight.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kQueryWeight = "model.layers.0.self_attn.q_proj.weight";

Json frozen_run(const char* format) {
  return {
      {"model",
       {{"name", "decoder"},
        {"layers", 2},
        {"width", 32},
        {"heads", 4},
        {"feed_forward", 48},
        {"vocab_size", 40},
        {"frozen", format}}},
      {"data",
       {{"name", "random_tokens"}, {"max_length", 8}, {"train_samples", 32}, {"batch_size", 4}}},
      {"optim", {{"name", "adamw"}, {"lr", 0.01}}},
      {"train",
       {{"steps", 60},
        {"log_interval", 1},
        {"checkpoint_interval", 1},
        {"freeze", {"model.layers.", "!*norm.weight"}}}},
      {"threads", 1}};
}

std::string frozen_config(const TempFolder& folder, const Json& config) {
  write_file(folder / "config.json", config.dump());
  return folder / "config.json";
}

ops::PackedMatrix packed_query(const std::string& file) {
  const auto state = data::SafetensorsFile::open(file);
  ops::PackedMatrix packed{ops::MatrixFormat::nf4, 32, 32, {}, {}, {}, {}};
  const std::string name = kQueryWeight;
  packed.codes = state.read(name);
  packed.scales = state.read(name + ".absmax");
  packed.scale_blocks = state.read(name + ".nested_absmax");
  packed.scale_mean = state.read(name + ".nested_offset");
  return packed;
}

}  // namespace

// Beside adapters of q and v, `all` keeps less than `queries`.
TEST_CASE(
    "model.rebuilt_products: beside int8 and nf4 all are rebuilt, and memory falls with bits") {
  const TempFolder folder;
  const auto kept = [&](const char* format, const char* rebuilt, const Json& compression) {
    Json config = frozen_run(format);
    config["train"] = {{"steps", 2}};
    config["adapter"] = {{"type", "lora"}, {"targets", {"q_proj", "v_proj"}}};
    if (std::string(rebuilt) != "default") config["model"]["rebuilt_products"] = rebuilt;
    config["compression"] = compression;
    config["compression"]["advanced"]["min_elements"] = 0;
    const Ran ran = frugal("train " + frozen_config(folder, config) +
                           " --overwrite --quiet --out " + (folder / "run"));
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json summary = Json::parse(read_file(folder / "run/summary.json"));
    return summary["memory"]["activation_bytes"].get<int64_t>();
  };
  const Json four = {{"bits", 4}};
  for (const char* format : {"int8", "nf4"}) {
    CAPTURE(format);
    CHECK(kept(format, "default", four) == kept(format, "all", four));
    CHECK(kept(format, "all", four) < kept(format, "queries", four));
    CHECK(kept(format, "queries", four) < kept(format, "none", four));
  }
  for (const char* format : {"f32", "bf16"}) {
    CAPTURE(format);
    CHECK(kept(format, "default", four) == kept(format, "queries", four));
  }
  // Memory falls with the bits, also where the inputs of rebuilt products have more.
  int64_t last = kept("nf4", "default", four);
  for (const double bits : {3.5, 3.0, 2.5, 2.0, 1.0}) {
    CAPTURE(bits);
    const Json fewer = {{"bits", bits}};
    const int64_t now = kept("nf4", "default", fewer);
    CHECK(now < last);
    CHECK(now < kept("nf4", "queries", fewer));
    last = now;
  }
  for (const Json& policy :
       {Json{{"bits", 4}, {"gact", {{"adaptive", true}}}}, Json{{"policy", "actnn"}, {"bits", 2}},
        Json{{"policy", "actnn"}, {"actnn", {{"adaptive", true}}}}}) {
    CAPTURE(policy.dump());
    CHECK(kept("nf4", "all", policy) < kept("nf4", "queries", policy));
  }
  // Bounds may give a tensor 2 bits.
  const Json bounds = {{"policy", "acgc"}};
  CHECK(kept("nf4", "all", bounds) == kept("nf4", "queries", bounds));
}

TEST_CASE("frozen weights: a run that was killed goes on to the same bits") {
  for (const char* format : {"bf16", "int8", "nf4"}) {
    CAPTURE(format);
    const TempFolder folder;
    Json run = frozen_run(format);
    if (format == std::string("nf4")) {  // widths are learned, also for what rebuilds products
      run["train"].erase("freeze");
      run["adapter"] = {{"type", "lora"}, {"targets", {"q_proj", "v_proj"}}};
      run["compression"] = {{"bits", 2},
                            {"gact", {{"adaptive", true}, {"interval", 7}}},
                            {"advanced", {{"min_elements", 0}}}};
    }
    const std::string config = frozen_config(folder, run);
    const auto out = [&](const char* name) { return folder / name; };
    REQUIRE(frugal("train " + config + " --out " + out("whole")).status == 0);
    REQUIRE(cut_run("train " + config, out("cut"), "checkpoint/state.safetensors", 0, SIGKILL) ==
            128 + SIGKILL);
    REQUIRE(frugal("train " + config + " --resume --out " + out("cut")).status == 0);
    CHECK(read_file(out("whole") + "/checkpoint/last.safetensors") ==
          read_file(out("cut") + "/checkpoint/last.safetensors"));
    CHECK(frugal("eval " + out("whole")).status == 0);
  }
}

TEST_CASE("frozen weights: exports hold the weights that packed ones stand for") {
  const TempFolder folder;
  const std::string config = frozen_config(folder, frozen_run("nf4"));
  REQUIRE(frugal("train " + config + " --out " + (folder / "run")).status == 0);
  REQUIRE(
      frugal("export " + (folder / "run") + " --format hf --output " + (folder / "hf")).status ==
      0);
  const ops::PackedMatrix packed = packed_query(folder / "run/checkpoint/last.safetensors");
  const auto exported = data::SafetensorsFile::open(folder / "hf/model.safetensors");
  CHECK(exported.read(kQueryWeight).to_vector() == ops::unpack_matrix(packed).to_vector());
  // A run that starts from these weights packs them to codes of nearly the same values.
  Json next = frozen_run("nf4");
  next["model"] = {{"name", "decoder"}, {"weights", folder / "hf"}, {"frozen", "nf4"}};
  next["train"]["steps"] = 1;
  write_file(folder / "next.json", next.dump());
  REQUIRE(frugal("train " + (folder / "next.json") + " --out " + (folder / "next")).status == 0);
  const Tensor again =
      ops::unpack_matrix(packed_query(folder / "next/checkpoint/last.safetensors"));
  const Tensor first = exported.read(kQueryWeight);
  for (int64_t i = 0; i < first.numel(); ++i)
    CHECK(again.item(i) == doctest::Approx(first.item(i)).epsilon(0.02));
}

TEST_CASE("frozen weights: what is refused") {
  const TempFolder folder;
  const auto refused = [&](const Json& config, const char* key, const char* part) {
    const Ran ran = frugal("train " + frozen_config(folder, config));
    CHECK(ran.status == 2);
    CHECK(has(ran.err, key));
    CHECK(has(ran.err, part));
  };
  Json config = frozen_run("nf4");
  config["train"].erase("freeze");
  refused(config, "model.frozen", "freeze some first");
  config = frozen_run("nf4");
  config["model"]["frozen_layers"] = {"model.norm."};
  refused(config, "model.frozen_layers",
          "expected a pattern that fits the weight of a linear layer");
  config = frozen_run("nf4");
  config["train"]["freeze"] = {"model.layers.0."};
  config["model"]["frozen_layers"] = {"model.layers.1."};
  refused(config, "model.frozen_layers", "which trains");
  config = frozen_run("nf4");
  config["train"]["freeze_epochs"] = 1;
  refused(config, "train.freeze_epochs", "packed weights never train");
  refused(frozen_run("int3"), "model.frozen", "int3");
  config = frozen_run("f32");
  config["model"]["frozen_layers"] = {"model.layers."};
  refused(config, "model.frozen_layers", "model.frozen");
}

TEST_CASE("frozen weights: a plan counts the bytes of packed weights") {
  const TempFolder folder;
  const auto parameters = [&](const char* format) {
    const Ran ran = frugal("bench step " + frozen_config(folder, frozen_run(format)) +
                           " --set device=meta --json");
    REQUIRE(ran.status == 0);
    return Json::parse(ran.out)["variants"][0]["memory"]["at_peak"]["parameter"].get<int64_t>();
  };
  // Weights of a layer: four of 32 x 32, three of 48 x 32. Their parts take whole 64 bytes: codes,
  // scales, the scales of these, their mean.
  const int64_t whole = 4 * (4 * 1024 + 3 * 1536);
  const int64_t packed = 4 * (512 + 64 + 64 + 64) + 3 * (768 + 64 + 64 + 64);
  CHECK(parameters("f32") - parameters("nf4") == 2 * (whole - packed));
}

}  // namespace frugal::apps
