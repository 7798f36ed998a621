// Runs with dithered rounding, whose unpacking draws again what packing drew.
#include <doctest/doctest.h>

#include "apps/json.h"
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
  config["model"] = {{"name", "resnet20"}};
  config["data"]["shape"] = {8, 8, 3};
  config["data"]["batch_size"] = 32;
  config["data"]["train_samples"] = 768;
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

}  // namespace frugal::apps
