// Runs with dithered rounding, whose unpacking draws again what packing drew.
#include <doctest/doctest.h>

#include "apps/config/keys/config_error.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "apps/json.h"
#include "compress/policies/choice.h"
#include "compress/policies/policy_kind.h"
#include "tests/apps/find_in.h"
#include "tests/apps/run.h"

namespace frugal::apps {
TEST_CASE("a dithered run that is ended and resumed gives the bits of one that was not") {
  std::string keep = "--set compression.level=L1";
  SUBCASE("of one width") {}
  SUBCASE("of widths that adapt") {
    keep = "--set compression.level=L2 --set compression.gact.interval=7";
  }
  SUBCASE("of widths by sample, coded by their entropy") {
    keep =
        "--set compression.policy=actnn --set compression.level=L3 "
        "--set compression.actnn.interval=7 --set compression.entropy=true";
  }
  SUBCASE("within a budget") {
    keep =
        "--set 'compression.memory_budget=\"1/4 activations\"' "
        "--set compression.gact.interval=7 --set compression.entropy=true";
  }
  CAPTURE(keep);
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  // Dither takes nothing away from what relu gives. It changes norms.
  config["model"] = {{"name", "resnet20"}, {"layers", 8}};
  config["data"]["shape"] = {8, 8, 3};
  config["data"]["batch_size"] = 16;
  config["data"]["train_samples"] = 384;
  config["train"]["epochs"] = 1;
  config["train"]["checkpoint_interval"] = 0;
  config["compression"]["advanced"]["rounding"] = "dithered";
  config["compression"]["advanced"]["min_elements"] = 96;
  write_file(folder / "c.json", config.dump());
  const std::string train = fmt::format("train {} {} --resume", folder / "c.json", keep);
  const Ran whole = frugal(train + " --out " + folder / "whole");
  REQUIRE_MESSAGE(whole.status == 0, whole.err);
  const std::string metrics = folder / "cut/metrics.jsonl";
  for (int times = 0; times < 2; ++times) {
    std::error_code none;
    const uintmax_t before = std::filesystem::file_size(metrics, none);
    CHECK(cut_run(train, folder / "cut", "metrics.jsonl", none ? 0 : before, SIGTERM) == 143);
    CHECK(std::filesystem::exists(folder / "cut/checkpoint/state.safetensors"));
    CHECK(!std::filesystem::exists(folder / "cut/summary.json"));
  }
  REQUIRE(frugal(train + " --out " + folder / "cut").status == 0);
  for (const char* name : {"/metrics.jsonl", "/checkpoint/last.safetensors",
                           "/checkpoint/best.safetensors", "/checkpoint/state.safetensors"}) {
    CAPTURE(name);
    const std::string a = read_file(folder / "whole" + name), b = read_file(folder / "cut" + name);
    CHECK(!a.empty());
    CHECK((a == b));
  }
  // Dither is in these bits.
  const Ran plain = frugal(train + " --out " + folder / "plain" +
                           " --set compression.advanced.rounding=stochastic");
  REQUIRE_MESSAGE(plain.status == 0, plain.err);
  CHECK(read_file(folder / "plain/checkpoint/last.safetensors") !=
        read_file(folder / "whole/checkpoint/last.safetensors"));
}

TEST_CASE("rounding is dithered unless that cannot be, or would bound unpacking") {
  const auto rounding = [](const char* json) {
    Config config = parse_config(Json::parse(json));
    resolve(config);
    const auto policy = make_policy(make_choice(config.compression), kCpu, 0);
    return find_in<compress::FixedPolicy>(*policy)->codec().options().rounding;
  };
  CHECK(rounding("{}") == compress::Rounding::dithered);
  CHECK(rounding(R"({"compression": {"advanced": {"rounding": "stochastic"}}})") ==
        compress::Rounding::stochastic);
  CHECK(rounding(R"({"device": "cuda"})") == compress::Rounding::stochastic);
  CHECK(rounding(R"({"device": "meta"})") == compress::Rounding::dithered);
  Config acgc = parse_config(Json::parse(R"({"compression": {"policy": "acgc"}})"));
  CHECK_NOTHROW(make_policy(make_choice(acgc.compression), kCpu, 0));
}

TEST_CASE("dithered rounding comes from the configuration, and AC-GC refuses it") {
  Config config =
      parse_config(Json::parse(R"({"compression": {"advanced": {"rounding": "dithered"}}})"));
  const auto policy = make_policy(make_choice(config.compression), kCpu, 0);
  const auto* fixed = find_in<compress::FixedPolicy>(*policy);
  REQUIRE(fixed != nullptr);
  CHECK(fixed->codec().options().rounding == compress::Rounding::dithered);
  config.compression.policy = PolicyKind::acgc;
  CHECK_THROWS_WITH_AS(make_policy(make_choice(config.compression), kCpu, 0),
                       "compression.advanced.rounding: expected stochastic or nearest with policy "
                       "acgc, got dithered",
                       ConfigError);
}

}  // namespace frugal::apps
