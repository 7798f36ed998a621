// Presets: names for sets of keys, and `frugal plan`, which recommends one.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "apps/cli/plan_text.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_choice.h"
#include "apps/config/planned_run.h"
#include "apps/config/resolve.h"
#include "compress/policies/policy_kind.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

std::string complaint(const std::string& compression) {
  try {
    parse_config(Json::parse(fmt::format(R"({{"compression": {}}})", compression)));
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

constexpr const char* kFile = R"({"model": {"name": "resnet20"}, "data": {"name": "random"},
    "compression": {"bits": 8, "policy": "actnn", "level": null, "recipes": false}})";

}  // namespace

TEST_CASE("a preset is a set of other keys, and keys beside it stay") {
  const auto keys = [](const std::string& compression) {
    const Config c =
        parse_config(Json::parse(fmt::format(R"({{"compression": {}}})", compression)));
    CHECK(to_json(parse_config(to_json(c))) == to_json(c));
    CHECK(to_json(c)["compression"]["preset"].is_null());
    return c.compression;
  };
  for (const auto& [name, bits, entropy] :
       std::initializer_list<std::tuple<const char*, int, bool>>{
           {"lossless", 0, false}, {"safe", 4, true}, {"small", 3, true}, {"smallest", 2, true}}) {
    const CompressionConfig c = keys(fmt::format(R"({{"preset": "{}"}})", name));
    CHECK(c.bits == bits);
    CHECK(c.entropy == entropy);
    CHECK(has_adaptive_widths(c) == (bits > 0));
    CHECK(c.recipes);
  }
  CHECK(keys(R"({"preset": "Small", "bits": 2.5, "entropy": false})").bits == 2.5);
  CHECK_FALSE(keys(R"({"preset": "small", "bits": 2.5, "entropy": false})").entropy);
  CHECK(keys(R"({"preset": null})").bits == 4);
}

TEST_CASE("the keys of a preset make the choice of that name, in every field") {
  for (const compress::Named& each : compress::presets()) {
    CAPTURE(each.name);
    // With recomputed blocks, which one field is about.
    const Json document = {{"compression", {{"preset", each.name}}},
                           {"train", {{"checkpointing", true}}}};
    const compress::Choice made = make_choice(parse_config(document).compression);
    CHECK(made.policy == each.choice.policy);
    CHECK(made.entropy == each.choice.entropy);
    CHECK(made.measuring == each.choice.measuring);
    CHECK(!made.offload);
    CHECK(made.profile == nullptr);
  }
}

TEST_CASE("what contradicts a preset is an error") {
  const std::pair<const char*, const char*> rows[] = {
      {R"({"preset": "smal"})",
       "compression.preset: expected one of lossless, safe, small, smalle"},
      {R"({"preset": "smal"})", "the nearest is 'small'"},
      {R"({"preset": 3})", "compression.preset: expected one of"},
      {R"({"preset": "small", "level": "L1"})",
       "compression.preset: expected null with compression.l"},
      {R"({"preset": "small", "memory_budget": "1/4"})",
       "expected null with compression.memory_budg"},
      {R"({"preset": "small", "policy": "acgc"})", "compression.policy: expected gact with"},
      {R"({"preset": "small", "bits": 0})", "compression.bits: expected at least 1 with"},
      {R"({"preset": "lossless", "bits": 4})", "compression.bits: expected 0 with"},
      {R"({"preset": "gact_paper", "bits": 0})", "compression.bits: expected at least 1 with"},
      {R"({"preset": "gact_paper", "policy": "actnn"})", "compression.policy: expected gact with"},
      {R"({"preset": "gact_paper", "level": "L2.5"})", "compression.level: "},
      {R"({"preset": "actnn_paper", "level": "L2", "bits": 2.5})", "compression.bits: expected a"},
      {R"({"preset": "actnn_paper", "level": "L4"})", "compression.offload: expected a folder"},
      {R"({"preset": "acgc_paper", "level": "L1"})",
       "compression.preset: expected null with compression.l"},
  };
  for (const auto& [text, what] : rows) {
    const std::string said = complaint(text);
    CHECK_MESSAGE(said.find(what) != std::string::npos, text, ": ", said);
  }
}

TEST_CASE("a paper's preset sets what the paper did, at each of its levels") {
  struct Row {
    const char *preset, *level, *named;
  };
  const Row rows[] = {
      {"gact_paper", "", "L2"},       {"gact_paper", "L0", "L0"},      {"gact_paper", "L1", "L1"},
      {"gact_paper", "L1.2", "L1.2"}, {"gact_paper", "L2.2", "L2.2"},  {"gact_paper", "CB1", "L1"},
      {"actnn_paper", "", "L3"},      {"actnn_paper", "L0", "L0"},     {"actnn_paper", "L1", "L1"},
      {"actnn_paper", "L2", "L2"},    {"actnn_paper", "L2.5", "L2.5"}, {"actnn_paper", "L3", "L3"},
      {"acgc_paper", "", ""}};
  for (const Row& row : rows) {
    CAPTURE(row.preset);
    CAPTURE(row.level);
    const TempFolder folder;
    Json document = {{"data", {{"name", "random"}}}, {"compression", {{"preset", row.preset}}}};
    if (*row.level != '\0') document["compression"]["level"] = row.level;
    write_file(folder / "c.json", document.dump());
    Config config = load_config(folder / "c.json");  // each key that is set is read
    resolve(config);
    const CompressionConfig& c = config.compression;
    if (*row.named != '\0') CHECK(level_text(c) == row.named);
    const bool packed = c.bits > 0;
    if (c.actnn.products_only == false) CHECK_FALSE(c.recipes);
    CHECK_FALSE(c.entropy);
    CHECK(c.pack_recomputed == config.train.checkpointing);
    CHECK(c.min_elements == (packed ? 0 : CompressionConfig().min_elements));
    if (packed && c.policy != PolicyKind::acgc) {
      CHECK(c.rounding == compress::Rounding::stochastic);
      CHECK(c.signs == compress::Signs::masks);
      CHECK(c.axis == (c.policy == PolicyKind::gact ? compress::GroupAxis::nchw
                                                    : compress::GroupAxis::column));
    }
    CHECK(to_json(parse_config(to_json(config))) == to_json(config));
    // The level as --set, over a file's preset, and both as --set.
    if (*row.level == '\0') continue;
    document["compression"].erase("level");
    write_file(folder / "c.json", document.dump());
    const std::string level = std::string("compression.level=") + row.level;
    Config set = load_config(folder / "c.json", {level});
    resolve(set);
    CHECK(to_json(set) == to_json(config));
    write_file(folder / "c.json", kFile);
    set = load_config(folder / "c.json", {std::string("compression.preset=") + row.preset, level});
    resolve(set);
    CHECK(to_json(set)["compression"] == to_json(config)["compression"]);
  }
  const CompressionConfig actnn =
      parse_config(Json::parse(R"({"compression": {"preset": "actnn_paper", "bits": 1.5}})"))
          .compression;
  CHECK(actnn.bits == 1.5);
  CHECK(actnn.actnn.norms_outside);
  CHECK(actnn.actnn.momentum == 0);
  CHECK(actnn.actnn.interval == 1);
  const CompressionConfig gact =
      parse_config(Json::parse(R"({"compression": {"preset": "gact_paper", "bits": 2}})"))
          .compression;
  CHECK(gact.bits == 2);
  CHECK(gact.gact.greedy);
  CHECK(gact.measuring.share == 1);
}

TEST_CASE("--set with a preset replaces what the file says, and other --set stay") {
  const TempFolder folder;
  write_file(folder / "c.json", kFile);
  const auto load = [&](const std::vector<std::string>& sets) {
    return load_config(folder / "c.json", sets).compression;
  };
  const CompressionConfig c = load({"compression.preset=small"});
  CHECK(c.policy == PolicyKind::gact);
  CHECK(c.bits == 3);
  CHECK(c.recipes);
  CHECK(c.entropy);
  CHECK(load({"compression.bits=5", "compression.preset=small"}).bits == 5);
  CHECK(load({"compression.preset=null"}).bits == 8);
  write_file(folder / "c.json", R"({"compression": {"preset": "small"}})");
  CHECK(load({}).bits == 3);
  CHECK(load({"compression.level=L1.1"}).bits == 8);
  CHECK_FALSE(load({"compression.level=L1.1"}).entropy);
  write_file(folder / "c.json", R"({"compression": {"memory_budget": "1/4"}})");
  CHECK(load({"compression.preset=lossless"}).memory_budget.empty());
}

TEST_CASE("a recommendation as keys, for people") {
  const Config config = parse_config(Json::parse(R"({"optim": {"name": "sgd"}})"));
  train::Recommendation found;
  found.rows = {{.preset = "lossless", .what = "no change of results", .peak = 10 << 20},
                {.preset = "lossless",
                 .what = "no change of results",
                 .with = {.in_backward = true, .in_8bit = true},
                 .peak = 5 << 20}};
  found.memory = 8 << 20;
  found.fits = true;
  found.chosen = 1;
  CHECK(keys_of(found.row(), config) ==
        std::vector<std::string>{"optim.in_backward=true", "optim.name=sgd_8bit"});
  const std::string text = text_of(Recommended{found, "--memory", config}, {});
  CHECK(has(text, "--set compression.preset=lossless --set optim.in_backward=true"));
  CHECK(has(text, "no preset alone fits into 8.0 MiB (--memory)"));
}

TEST_CASE("the memory of a plan is that which is given, the limit, or what is free") {
  const TempFolder folder;
  write_file(folder / "c.json", kFile);
  const auto plan = [&](const std::string& sets) {
    const Ran ran = frugal("plan --json " + (folder / "c.json") + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out);
  };
  const auto from = [&](const std::string& sets) {
    return plan(sets).at("recommended").at("memory_from").get<std::string>();
  };
  CHECK(from(" --memory 1TiB") == "--memory");
  CHECK(from(" --set memory_limit=1TiB") == "memory_limit");
  CHECK(from("") == "free memory");
  CHECK_FALSE(plan(" --set device=cuda").contains("recommended"));
}

TEST_CASE("frugal plan says which preset to set, within 80 columns and as JSON") {
  const TempFolder folder;
  write_file(folder / "c.json", kFile);
  const std::string plan = "plan " + folder / "c.json";
  const Ran ran = frugal(plan + " --memory '60 MiB'");
  CHECK_MESSAGE(ran.status == 0, ran.err);
  CHECK(ran.out.find("recommended: --set compression.preset=safe") != std::string::npos);
  const Ran none = frugal(plan + " --memory '5 MiB'");
  CHECK(none.out.find("no preset fits into 5.0 MiB (--memory)") != std::string::npos);
  CHECK(none.out.find("a step of \"") == std::string::npos);  // nothing fits
  // A row of the table takes less than the least preset.
  const Json least = Json::parse(frugal(plan + " --memory '5 MiB' --json").out);
  int64_t row = 0, preset = std::numeric_limits<int64_t>::max();
  for (const Json& each : least.at("levels"))
    if (each.at("name") == "4 bits, offload") row = each.at("memory").at("peak_bytes");
  for (const Json& each : least.at("recommended").at("presets"))
    preset = std::min(preset, each.at("peak_bytes").get<int64_t>());
  REQUIRE(row < preset);
  const Ran moved = frugal(fmt::format("{} --memory {}", plan, row));
  CHECK(has(moved.out, "a step of \"4 bits, offload\" takes "));
  CHECK(has(moved.out, "--set compression.offload="));
  std::istringstream lines(ran.out + none.out + moved.out);
  for (std::string line; std::getline(lines, line);) CHECK_MESSAGE(line.size() <= 80, line);
  const Json found = Json::parse(frugal(plan + " --memory 5TiB --json").out).at("recommended");
  CHECK(found["set"] == "--set compression.preset=lossless");
  CHECK(found["presets"].size() == 4);
  const Ran planned = frugal(plan +
                             " --set compression.policy=gact --set "
                             "compression.memory_budget=1/3 --set compression.recipes=true");
  CHECK_MESSAGE(planned.status == 0, planned.err);
  CHECK(planned.out.find("bits on average") != std::string::npos);
  CHECK(planned.out.find("compression.memory_budget as it is") != std::string::npos);
  for (const char* wrong : {"much", "-1", "5 Mi", "99999999 TiB"}) {
    const Ran failed = frugal(plan + " --memory='" + wrong + "'");
    CHECK(failed.status == 2);
    CHECK_MESSAGE(failed.err.find("--memory") != std::string::npos, failed.err);
  }
}

// A tensor that is rebuilt comes in slices, and one that is kept does not. A kernel may add up in
// another order for a slice, or for the pixels that a projection meets alone.
TEST_CASE("a training takes no more than the plan of its preset says") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({
    "model": {"name": "resnet20"},
    "data": {"name": "random", "shape": [32, 32, 3], "classes": 4, "batch_size": 32,
             "train_samples": 64, "test_samples": 32},
    "train": {"steps": 2}, "threads": 1})");
  const Json plan = Json::parse(frugal("plan " + folder / "c.json" + " --memory 1TiB --json").out);
  for (const Json& each : plan.at("recommended").at("presets")) {
    const auto name = each.at("preset").get<std::string>();
    CAPTURE(name);
    const Ran ran =
        frugal("train " + folder / "c.json" + " --json --set compression.preset=" + name);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const auto planned = each.at("peak_bytes").get<int64_t>(),
               took = Json::parse(ran.out).at("memory").at("peak_bytes").get<int64_t>();
    CHECK(took <= planned + planned / 100);
    CHECK(took >= planned * 3 / 4);
  }
}

TEST_CASE("lossless: recipes change no bit of a network with wide projections") {
  const TempFolder folder;
  struct Row {
    int inner, outer, side, batch;
    const char* slices;
  };
  for (const Row& row : {
           Row{64, 1536, 8, 8, "\"4 KiB\""},  // dx: sums of 1,536 products, slices of one picture
           Row{1024, 8, 7, 88, "null"},       // y: sums of 1,024, of an x of 17 MB
       }) {
    CAPTURE(row.inner);
    const std::string config = folder / "c.json", run = folder / "run";
    write_file(config, fmt::format(R"({{
      "model": {{"name": "sequential", "modules": [
        {{"conv2d": {{"out_channels": {}, "kernel_size": 1}}}}, "batch_norm", "relu",
        {{"conv2d": {{"out_channels": {}, "kernel_size": 1, "stride": 2}}}}, "mean_pool", "linear"]}},
      "data": {{"name": "random", "shape": [{}, {}, 3], "classes": 3, "batch_size": {},
               "train_samples": {}, "test_samples": 2}},
      "optim": {{"lr": 0.01}},
      "compression": {{"preset": "lossless", "advanced": {{"slice_bytes": {}}}}},
      "train": {{"steps": 2}}}})",
                                   row.inner, row.outer, row.side, row.side, row.batch,
                                   2 * row.batch, row.slices));
    const auto bits_of_weights = [&](const std::string& keys) {
      const Ran ran = frugal("train " + config + keys + " --overwrite --out " + run);
      REQUIRE_MESSAGE(ran.status == 0, ran.err);
      std::string bits;
      for (const auto& [name, tensor] :
           data::SafetensorsFile::open(run + "/checkpoint/last.safetensors").read_all())
        bits += name + std::string(static_cast<const char*>(tensor.raw()),
                                   static_cast<size_t>(tensor.nbytes()));
      return bits;
    };
    const bool equal = bits_of_weights("") == bits_of_weights(" --set compression.recipes=false");
    CHECK(equal);
  }
}

}  // namespace frugal::apps
