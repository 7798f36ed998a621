#include "apps/config/config.h"

#include <doctest/doctest.h>

#include "apps/config/keys/config_table.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "data/fetch/sha256.h"
#include "ops/precision.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// What parse_config complains about, as "path: what".
std::string parse_complaint(const std::string& text) {
  try {
    parse_config(Json::parse(text));
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("defaults round-trip through JSON and every field can be set to its own default") {
  const Config defaults = parse_config(Json::object());
  const Json document = to_json(defaults);
  CHECK(to_json(parse_config(document)) == document);
  CHECK(first_difference(defaults, parse_config(document)).empty());
  CHECK(document["optim"]["momentum"] == 0.9);
}

TEST_CASE("values arrive in their members") {
  const Config c = parse_config(Json::parse(R"({
    "$schema": "x", "model": {"name": "mlp", "hidden": [3, 4], "num_classes": 7, "dropout": 0.25,
                                "width": 1e2},
    "data": {"dir": "d", "batch_size": 1e3}, "schedule": {"milestones": [1, 2.5]},
    "memory_limit": "1.5 GiB", "seed": 5})"));
  CHECK(c.model.options.at("hidden").integers() == std::vector<int64_t>{3, 4});
  CHECK(*c.model.num_classes == 7);
  CHECK(c.model.options.at("dropout").number() == 0.25);
  CHECK(c.model.integer("width") == 100);
  CHECK(*c.data.dir == "d");
  CHECK(c.data.batch_size == 1000);
  CHECK(c.schedule.milestones == std::vector<double>{1, 2.5});
  CHECK(c.run.memory_limit == int64_t{3} << 29);
  CHECK(c.run.seed == 5);
}

TEST_CASE("device names a GPU by its index, and it does not matter which one") {
  const auto with = [](const std::string& device) {
    return parse_config(Json{{"device", device}, {"precision", "bf16"}});
  };
  for (const char* device : {"cuda", "cuda:0", "cuda:1", "cuda:12"}) {
    CAPTURE(std::string(device));
    Config c = with(device);
    CHECK(c.run.device == device);
    CHECK(c.run.on_cuda());
    CHECK(unread_keys(c).empty());
    CHECK(first_difference(c, with("cuda")).empty());
    CHECK(first_difference(c, with("meta")) == "device");
    resolve(c);
    CHECK(c.compression.slice_bytes == 8 * SavePolicy::kSliceBytes);
  }
  CHECK(with("CUDA:1").run.device == "cuda:1");
  for (const char* device : {"cuda:", "cuda:-1", "cuda:x", "cuda:1 ", "cudax", "gpu", ""})
    CHECK(has(parse_complaint(Json{{"device", device}}.dump()),
              "device: expected a text such as cpu, cuda, cuda:1, meta, got"));
}

TEST_CASE("the memory of a GPU is the limit where there is one") {
  RunConfig run;
  run.memory_limit = 5 << 20;
  CHECK(gpu_memory(run) == 0);
  for (const char* device : {"cuda", "cuda:3"}) {
    run.device = device;
    CHECK(gpu_memory(run) == 5 << 20);
  }
}

TEST_CASE("an unknown key names the nearest valid one") {
  CHECK(has(parse_complaint(R"({"optim": {"momentun": 0.9}})"),
            "optim.momentun: unknown key; the nearest valid key is 'optim.momentum'"));
  CHECK(has(parse_complaint(R"({"modle": {}})"), "nearest valid key is 'model'"));
  CHECK(has(parse_complaint(R"({"lr": 0.1})"), "nearest valid key is 'optim.lr'"));
  CHECK(has(parse_complaint(R"({"sede": 1})"), "nearest valid key is 'seed'"));
  CHECK(has(parse_complaint(R"({"optim.lr": 1})"), R"(optim.lr: expected {"optim": {"lr": ...}})"));
  CHECK(has(parse_complaint(R"({"compression": {"advanced.min_elements": 1}})"),
            R"(expected {"compression": {"advanced": {"min_elements": ...}}} in a file)"));
  CHECK(has(parse_complaint(R"({"train": {"batch_size": 1}})"), "'data.batch_size'"));
}

TEST_CASE("wrong types and values out of range say where and what was expected") {
  CHECK(has(parse_complaint(R"({"optim": {"lr": "fast"}})"), "optim.lr: expected a number in (0"));
  CHECK(has(parse_complaint(R"({"optim": {"lr": "fast"}})"), "got \"fast\""));
  CHECK(has(parse_complaint(R"({"optim": {"lr": 0}})"), "optim.lr"));
  CHECK(has(parse_complaint(R"({"optim": {"momentum": 1}})"), "[0.0, 1.0)"));
  CHECK(has(parse_complaint(R"({"optim": {"nesterov": 1}})"), "true or false"));
  CHECK(has(parse_complaint(R"({"train": {"epochs": 0}})"),
            "train.epochs: expected an integer in [1"));
  CHECK(has(parse_complaint(R"({"train": {"epochs": 1.5}})"), "got 1.5"));
  CHECK(has(parse_complaint(R"({"train": {"epochs": 1e300}})"), "train.epochs"));
  CHECK(has(parse_complaint(R"({"seed": 18446744073709551615})"), "seed: expected"));
  CHECK(has(parse_complaint(R"({"seed": 18446744073709551617})"),
            "seed: expected"));  // beyond 64 bits
  CHECK(has(parse_complaint(R"({"seed": -1})"), "seed: expected"));
  CHECK(has(parse_complaint(R"({"model": {"name": "resnet19"}})"), "expected one of resnet20"));
  CHECK(has(parse_complaint(R"({"model": {"name": "sequental"}})"),
            "the nearest one is 'sequential'"));
  CHECK(has(parse_complaint(R"({"model": {"hidden": [3, "x"]}})"), "model.hidden[1]: expected"));
  CHECK(has(parse_complaint(R"({"model": {"hidden": 3}})"), "a list of 0 to 64"));
  CHECK(has(parse_complaint(R"({"model": null})"), "model: expected an object, got null"));
  CHECK(has(parse_complaint(R"({"data": {"dir": 3}})"), "a text or null"));
  CHECK(has(parse_complaint(R"({"data": {"shape": [1, 2]}})"), "a list of 3"));
  CHECK(has(parse_complaint(R"({"memory_limit": "lots"})"), "memory_limit: expected"));
  CHECK(has(parse_complaint(R"({"memory_limit": "9999999999999 TiB"})"), "memory_limit"));
  const std::string long_number(400, '9');
  CHECK(has(parse_complaint(R"({"memory_limit": ")" + long_number + "\"}"),
            "memory_limit: expected"));
  CHECK(has(parse_complaint(R"({"compression": {"level": "L9"}})"), "L0, L1, L1.1, L1.2"));
  CHECK(has(parse_complaint(R"({"compression": {"advanced": {"group_size": 100}}})"),
            "a multiple of 8"));
  CHECK(has(parse_complaint("[1]"), "expected an object of sections, got array"));
}

TEST_CASE("values that contradict each other") {
  CHECK(has(parse_complaint(R"({"optim": {"nesterov": true, "momentum": 0}})"), "optim.nesterov"));
  CHECK(has(parse_complaint(R"({"optim": {"name": "sgd_8bit", "momentum": 0}})"),
            "optim.momentum: expected a number above 0 with sgd_8bit"));
  CHECK(has(parse_complaint(R"({"schedule": {"name": "step"}})"), "schedule.milestones"));
  CHECK(has(parse_complaint(R"({"schedule": {"milestones": [3, 2]}})"), "increasing"));
  CHECK(has(parse_complaint(R"({"schedule": {"min_lr": 1}})"), "at most optim.lr"));
  auto resolving = [](const char* text) {
    Config c = parse_config(Json::parse(text));
    resolve(c);
    return c;
  };
  CHECK_THROWS_AS(resolving(R"({"model": {"num_classes": 9}})"), ConfigError);
  CHECK_THROWS_AS(resolving(R"({"model": {"in_channels": 3}})"), ConfigError);
  CHECK_THROWS_WITH_AS(resolving(R"({"compression": {"level": "L3"}})"),
                       doctest::Contains("compression.offload"), ConfigError);
  CHECK_THROWS_WITH_AS(resolving(R"({"compression": {"level": "L1", "bits": 2.5}})"),
                       doctest::Contains("compression.bits"), ConfigError);
  CHECK_THROWS_WITH_AS(resolving(R"({"compression": {"level": "L2", "bits": 0.5}})"),
                       doctest::Contains("compression.bits"), ConfigError);
  CHECK_THROWS_WITH_AS(resolving(R"({"compression": {"bits": 0.5}})"),
                       doctest::Contains("compression.bits"), ConfigError);
  CHECK(resolving(R"({"compression": {"level": "CB1"}})").train.checkpointing);
  using compress::Rounding;
  for (const auto& [text, rounding] : std::initializer_list<std::pair<const char*, Rounding>>{
           {R"({})", Rounding::dithered},
           {R"({"device": "cuda"})", Rounding::stochastic},
           {R"({"compression": {"policy": "acgc"}})", Rounding::stochastic},
           {R"({"compression": {"advanced": {"rounding": "nearest"}}})", Rounding::nearest}})
    CHECK(resolving(text).compression.rounding == rounding);
  for (const char* other : {R"({"optim": {"in_backward": true, "clip_norm": 1}})",
                            R"({"optim": {"in_backward": true}, "train": {"checkpointing": true}})",
                            R"({"optim": {"in_backward": true},
                                "compression": {"budget": {"recompute": true}}})",
                            R"({"optim": {"in_backward": true},
                                "train": {"gradient_accumulation": 2}})"})
    CHECK_THROWS_WITH_AS(resolving(other), doctest::Contains("optim.in_backward"), ConfigError);
  const Config c = resolving(R"({"data": {"name": "random", "shape": [4, 5, 6], "classes": 3}})");
  CHECK(*c.model.in_channels == 6);
  CHECK(*c.model.num_classes == 3);
}

TEST_CASE("--set changes one key and parses JSON or text") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"optim": {"lr": 0.5}})");
  auto load = [&](std::vector<std::string> sets) { return load_config(folder / "c.json", sets); };
  const Config c = load({"optim.lr=0.25", "model.name=mlp", "model.hidden=[5]", "data.dir=null",
                         "memory_limit=2 GiB", "seed=3"});
  CHECK(c.optim.lr == 0.25);
  CHECK(c.model.name == "mlp");
  CHECK(c.model.options.at("hidden").integers() == std::vector<int64_t>{5});
  CHECK(c.run.memory_limit == int64_t{2} << 30);
  CHECK(c.run.seed == 3);
  CHECK_THROWS_AS(load({"optim.lr"}), ConfigError);
  CHECK_THROWS_AS(load({"=3"}), ConfigError);
  CHECK_THROWS_AS(load({"seed.x=3", "seed.x.y=3"}), ConfigError);
  CHECK_THROWS_WITH_AS(load({"optim.lrr=1"}), doctest::Contains("optim.lr"), ConfigError);
}

TEST_CASE("files that are missing or no JSON") {
  const TempFolder folder;
  CHECK_THROWS_WITH_AS(load_config(folder / "none.json"), doctest::Contains("cannot read"),
                       ConfigError);
  write_file(folder / "bad.json", "{\"model\": \n {\"name\": }}");
  CHECK_THROWS_WITH_AS(load_config(folder / "bad.json"), doctest::Contains("line 2"), ConfigError);
  CHECK_THROWS_AS(load_config(folder / ""), ConfigError);
}

TEST_CASE("sizes with units") {
  CHECK(parse_bytes("1024") == 1024);
  CHECK(parse_bytes("2 GiB") == int64_t{2} << 30);
  CHECK(parse_bytes("1.5KiB") == 1536);
  CHECK(parse_bytes("3MB") == 3'000'000);
  CHECK(parse_bytes("7 B") == 7);
  CHECK(parse_bytes("7b") == 7);
  CHECK(parse_bytes("4 kB") == 4000);
  CHECK(parse_bytes("2 gib") == int64_t{2} << 30);
  CHECK(parse_bytes("1 TB") == 1'000'000'000'000);
  CHECK(parse_bytes("1.5G") == int64_t{3} << 29);
  CHECK(parse_bytes("3k") == 3072);
}

TEST_CASE("the hash names a configuration") {
  // The two examples of FIPS 180-4's publisher, and the empty text.
  CHECK(data::sha256_hex("abc") ==
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(data::sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(data::sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Config a, b;
  CHECK(config_sha256(a) == config_sha256(b));
  b.optim.lr = 0.2;
  CHECK(config_sha256(a) != config_sha256(b));
}

TEST_CASE("what a resumed run may change") {
  Config a, b;
  b.run.threads = 7;
  b.data.dir = "elsewhere";
  b.data.workers = 3;
  b.train.checkpoint_interval = 5;
  CHECK(first_difference(a, b).empty());
  b.run.seed = 1;
  CHECK(first_difference(a, b) == "seed");
  b.compression.bits = 0;
  CHECK(first_difference(a, b) == "compression.bits");
}

TEST_CASE("slices are larger on CUDA, unless they are given") {
  const auto slices = [](const std::string& device, const Json& given) {
    Json document = Json::parse(R"({"model": {"name": "resnet20"}, "data": {"name": "random"}})");
    document["device"] = device;
    document["compression"]["advanced"]["slice_bytes"] = given;
    Config config = parse_config(document);
    resolve(config);
    return config.compression.slice_bytes;
  };
  CHECK(slices("cpu", nullptr) == SavePolicy::kSliceBytes);
  CHECK(slices("cuda", nullptr) == 8 * SavePolicy::kSliceBytes);
  CHECK(slices("cuda", 0) == 0);
  CHECK(slices("cuda", 12345) == 12345);
}

TEST_CASE("the schema in configs/ is up to date and the ready configs fit") {
  CHECK(Json::parse(read_file(FRUGAL_CONFIGS "/schema.json")) == config_schema());
  int checked = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FRUGAL_CONFIGS)) {
    if (entry.path().filename() == "schema.json" || entry.is_directory()) continue;
    CAPTURE(entry.path().string());
    CHECK_NOTHROW(load_config(entry.path().string()));
    ++checked;
  }
  CHECK(checked >= 4);
}

TEST_CASE("every key has documentation, and the help shows it") {
  const std::string help = config_help();
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      CAPTURE(section.path(field));
      CHECK(field.doc.size() > 8);
      CHECK(help.find("  " + section.path(field) + "\n") != std::string::npos);
      CHECK_NOTHROW(validate(field.schema, field.get(Config{}), section.path(field)));
    }
}

TEST_CASE("bf16 on the CPU needs a processor that multiplies it, or arithmetic in f32") {
  const auto set_up = [](const char* precision) {
    RunConfig run;
    run.precision = precision;
    CHECK(run.has_bf16() == (std::string(precision) != "f32"));
    set_up_device(run);
  };
  set_up("bf16_in_f32");
  CHECK_FALSE(ops::bf16_products());
  if (ops::processor_multiplies_bf16()) {
    set_up("bf16");
    CHECK(ops::bf16_products());
  } else {
    CHECK_THROWS_WITH_AS(set_up("bf16"),
                         doctest::Contains("precision: expected f32 or bf16_in_f32, since "
                                           "oneDNN does not multiply bf16 here"),
                         ConfigError);
  }
  RunConfig run;
  run.precision = "tf32";
  CHECK_THROWS_WITH_AS(set_up_device(run),
                       "precision: expected f32, bf16 or bf16_in_f32 on the cpu, got tf32",
                       ConfigError);
  set_up("f32");
}

TEST_CASE("convolutions on CUDA are as the configuration says") {
  Config config =
      parse_config(Json::parse(R"({"deterministic": false, "workspace_limit": "3 MiB"})"));
  set_up_device(config.run);
  CHECK_FALSE(ops::deterministic());
  CHECK(ops::convolution_workspace() == 3 << 20);
  set_up_device(RunConfig());
  CHECK(ops::deterministic());
  CHECK(ops::convolution_workspace() == 512 << 20);
}

}  // namespace frugal::apps
