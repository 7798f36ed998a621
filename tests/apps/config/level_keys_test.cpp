// Levels as names for other keys, and the keys' earlier spellings.
#include "apps/config/keys/level_keys.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "apps/config/keys/config_table.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "data/formats/safetensors.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

Config resolved(const Json& document) {
  Config config = parse_config(document);
  resolve(config);
  return config;
}

Json random_images(const Json& compression) {
  return {{"data", {{"name", "random"}}}, {"compression", compression}};
}

std::string level_complaint(const Json& document) {
  try {
    resolved(document);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

struct LevelRow {
  const char *policy, *level;
  Json keys;  // what the level stands for, at the places of a configuration
};
const std::vector<LevelRow>& levels() {
  const Json adaptive = {{"adaptive", true}}, folder = "/tmp";
  static const std::vector<LevelRow> all = {
      {"gact", "L0", {{"bits", 0}}},
      {"gact", "L1", {{"bits", 4}}},
      {"gact", "L1.1", {{"bits", 8}}},
      {"gact", "L1.2", {{"bits", 2}}},
      {"gact", "L2", {{"bits", 4}, {"gact", adaptive}}},
      {"gact", "L2.1", {{"bits", 3}, {"gact", adaptive}}},
      {"gact", "L2.2", {{"bits", 2}, {"gact", adaptive}}},
      {"gact", "L3", {{"bits", 4}, {"gact", adaptive}, {"offload", folder}}},
      {"gact", "CB1", {{"bits", 4}}},
      {"gact", "CB2", {{"bits", 4}}},
      {"actnn", "L0", {{"bits", 0}}},
      {"actnn", "L1", {{"bits", 4}, {"actnn", {{"products_only", true}}}}},
      {"actnn", "L2", {{"bits", 4}}},
      {"actnn", "L2.5", {{"bits", 2}, {"actnn", {{"adaptive", true}, {"by_sample", false}}}}},
      {"actnn", "L3", {{"bits", 2}, {"actnn", adaptive}}},
      {"actnn", "L4", {{"bits", 2}, {"actnn", adaptive}, {"offload", folder}}},
      {"actnn", "L5", {{"bits", 2}, {"actnn", adaptive}, {"offload", folder}}},
  };
  return all;
}

// A value of each key, as an earlier version took it.
Json some_value(const std::string& path) {
  static const std::map<std::string, Json> odd = {
      {"compression.acgc_rule", "published"}, {"compression.acgc_count", "expected"},
      {"compression.acgc_codec", "entropy"},  {"compression.signs", "masks"},
      {"compression.group_axis", "row"},      {"compression.rounding", "nearest"},
      {"compression.budget_recompute", true}};
  const auto found = odd.find(path);
  return found == odd.end() ? Json(64) : found->second;
}

}  // namespace

TEST_CASE("a level is the keys that it stands for, and what is printed makes the same run") {
  for (const LevelRow& row : levels()) {
    CAPTURE(row.policy);
    CAPTURE(row.level);
    Json named = random_images({{"policy", row.policy}, {"level", row.level}});
    if (row.keys.contains("offload")) named["compression"]["offload"] = row.keys["offload"];
    Json plain = random_images(row.keys);
    plain["compression"]["policy"] = row.policy;
    if (std::string(row.level).starts_with("CB")) plain["train"]["checkpointing"] = true;
    const Config config = resolved(named);
    const Json printed = to_json(config);
    CHECK(printed == to_json(resolved(plain)));
    CHECK(printed.at("compression").at("level").is_null());
    CHECK(config.train.checkpointing == plain.contains("train"));
    const Config again = resolved(printed);
    CHECK(to_json(again) == printed);
    CHECK(unread_keys(again).empty());
    // Both make one policy, which is that of the library's level.
    const compress::Choice choice = make_choice(again.compression);
    CHECK(choice.policy == make_choice(config.compression).policy);
    const std::string folder = row.keys.contains("offload") ? row.keys["offload"] : Json("");
    const compress::Choice paper = on_device(compress::paper(row.policy, row.level, folder), kCpu);
    CHECK(on_device(choice, kCpu).policy == paper.policy);
    CHECK(choice.offload == paper.offload);
    CHECK_NOTHROW(make_policy(choice, kMeta, 0));
  }
}

TEST_CASE("bits say what is packed: raw, one width, or an average") {
  const auto named = [](const Json& compression) {
    return level_text(resolved(random_images(compression)).compression);
  };
  CHECK(named(Json::object()) == "L1");  // 4 bits
  CHECK(named({{"bits", 0}}) == "L0");
  CHECK(named({{"bits", 4.0}}) == "L1");
  CHECK(named({{"bits", 5}}) == "L1 at 5 bits");
  CHECK(named({{"bits", 2.5}}) == "L2 at 2.5 bits");
  CHECK(named({{"level", "L2"}, {"bits", 3}}) == "L2.1");
  CHECK(named({{"level", "L2.2"}, {"bits", 2.25}}) == "L2 at 2.25 bits");
  CHECK(named({{"policy", "actnn"}, {"bits", 1.25}}) == "L3 at 1.25 bits");
  CHECK(named({{"policy", "actnn"}, {"bits", 8}}) == "L2 at 8 bits");
  CHECK(named({{"policy", "actnn"}, {"level", "L2.5"}}) == "L2.5");
  CHECK(named({{"policy", "actnn"}, {"level", "L2.5"}, {"bits", 1.5}}) == "L2.5 at 1.5 bits");
}

TEST_CASE("keys that contradict a level are errors") {
  CHECK(has(level_complaint(random_images({{"level", "L0"}, {"bits", 4}})),
            "compression.bits: expected 0 with level L0, got 4"));
  CHECK(has(level_complaint(random_images({{"level", "L1"}, {"bits", 0}})),
            "compression.bits: expected at least 1 with level L1, got 0"));
  CHECK(has(level_complaint(random_images({{"level", "L2"}, {"gact", {{"adaptive", false}}}})),
            "compression.gact.adaptive: expected true with compression.level L2, got false"));
  CHECK(has(level_complaint(random_images({{"level", "L3"}})),
            "compression.offload: expected a folder"));
  CHECK(has(level_complaint(random_images({{"level", "L4"}})), "compression.level"));
}

TEST_CASE("a level that --set chooses counts over the file's keys") {
  const TempFolder folder;
  const std::string file = folder / "c.json";
  write_file(file, R"({"compression": {"bits": 2, "gact": {"adaptive": true}}})");
  const auto bits = [&](const std::vector<std::string>& sets) {
    const CompressionConfig c = load_config(file, sets).compression;
    return fmt::format("{} {}", c.bits, c.gact_adaptive);
  };
  CHECK(bits({}) == "2 true");
  CHECK(bits({"compression.level=L0"}) == "0 false");
  CHECK(bits({"compression.level=L1.1"}) == "8 false");
  CHECK(bits({"compression.bits=3"}) == "3 true");
  CHECK(bits({"compression.bits=3", "compression.level=L2"}) == "3 true");
  CHECK(bits({"compression.level=null"}) == "2 true");
  for (const char* level : {"L0", "L1", "L2"})
    CHECK_THROWS_WITH_AS(
        load_config(file, {std::string("compression.level=") + level, "compression.policy=acgc"}),
        doctest::Contains("compression.level: expected null with "
                          "compression.policy acgc, which has no levels"),
        ConfigError);
  CHECK_THROWS_WITH_AS(load_config(file, {"compression.level=L2", "compression.memory_budget=1/4"}),
                       doctest::Contains("compression.level: L2 sets compression.gact.adaptive"),
                       ConfigError);
}

TEST_CASE("each earlier spelling is answered with the present one") {
  const TempFolder folder;
  write_file(folder / "c.json", "{}");
  std::set<std::string> valid;
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) valid.insert(section.path(field));
  REQUIRE(old_keys().size() == 20);
  for (const OldKey& old : old_keys()) {
    CAPTURE(old.path);
    CHECK_FALSE(valid.contains(old.path));
    CHECK(valid.contains(old.now.substr(0, old.now.find_first_of(" ,"))));
    const std::string expected = old.path + " is now " + old.now, key = old.path.substr(12);
    CHECK(has(level_complaint({{"compression", {{key, some_value(old.path)}}}}), expected));
    CHECK_THROWS_WITH_AS(
        load_config(folder / "c.json", {old.path + "=" + some_value(old.path).dump()}),
        doctest::Contains(expected.c_str()), ConfigError);
  }
  CHECK(has(level_complaint({{"compression", {{"group_size", 64}}}}),
            "compression.group_size is now compression.advanced.group_size"));
  CHECK(has(level_complaint({{"compression", {{"policy", "budget"}, {"memory_budget", "1/6"}}}}),
            "a compression.memory_budget such as \"2 GiB\" means it"));
}

TEST_CASE("a run whose configuration has earlier spellings does not go on, and says why") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string train =
      "train " + folder / "c.json" + " --set train.steps=2 --out " + folder / "r";
  REQUIRE(frugal(train).status == 0);
  const std::string path = folder / "r/checkpoint/state.safetensors";
  {
    const auto file = data::SafetensorsFile::open(path);
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const std::string& name : file.names()) tensors.emplace_back(name, file.read(name));
    data::Metadata metadata = file.metadata();
    for (auto& [key, value] : metadata) {
      if (key != "config") continue;
      Json config = Json::parse(value);
      config["compression"]["group_size"] = 256;
      value = config.dump();
    }
    data::write_safetensors(path, tensors, metadata);
  }
  const Ran ran = frugal(train + " --resume");
  CHECK(ran.status == 2);
  CHECK(has(ran.err, "compression.group_size is now compression.advanced.group_size"));
}

TEST_CASE("a section of a policy that is not chosen is an error, unless it has its defaults") {
  const Json defaults = to_json(Config{}).at("compression");
  struct Case {
    const char *section, *key;
    Json value;
  };
  for (const Case& each : {Case{"gact", "interval", 9}, Case{"gact", "adaptive", true},
                           Case{"actnn", "interval", 9}, Case{"actnn", "adaptive", true},
                           Case{"acgc", "growth", 2}, Case{"budget", "recompute", true}})
    for (const Json& chosen :
         {Json{{"policy", "gact"}, {"bits", 2.5}}, Json{{"policy", "actnn"}, {"bits", 2.5}},
          Json{{"policy", "acgc"}}, Json{{"memory_budget", "1/6"}}}) {
      const std::string policy =
          chosen.contains("memory_budget") ? "budget" : chosen.at("policy").get<std::string>();
      if (policy == each.section) continue;
      if (policy == "budget" && std::string(each.key) == "interval" &&
          std::string(each.section) == "gact")
        continue;  // a plan measures as gact does
      CAPTURE(policy);
      CAPTURE(each.section);
      const TempFolder folder;
      Json document = {{"compression", chosen}};
      document["compression"][each.section] = defaults.at(each.section);
      write_file(folder / "c.json", document.dump());
      CHECK_NOTHROW(load_config(folder / "c.json"));
      document["compression"][each.section] = {{each.key, each.value}};
      write_file(folder / "c.json", document.dump());
      CHECK_THROWS_WITH_AS(
          load_config(folder / "c.json"),
          doctest::Contains(fmt::format("compression.{}.{}", each.section, each.key).c_str()),
          ConfigError);
    }
}

}  // namespace frugal::apps
