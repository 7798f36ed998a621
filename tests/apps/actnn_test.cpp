// Runs whose bits follow ActNN's sensitivities.
#include <doctest/doctest.h>

#include "apps/config/config.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "compress/policies/actnn_policy.h"
#include "compress/policies/levels.h"
#include "compress/policies/policy_kind.h"
#include "tests/apps/find_in.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// A level of ActNN on tensors of any size.
std::string with_level(const std::string& level) {
  return fmt::format(" --set compression.policy=actnn --set compression.level={}", level);
}

std::string complaint(const std::string& compression) {
  try {
    Config config = parse_config(Json::parse(
        fmt::format(R"({{"data": {{"name": "random"}}, "compression": {}}})", compression)));
    resolve(config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a run that is stopped and resumed learns the same sensitivities and bits") {
  const TempFolder folder;
  write_file(folder / "config.json", kTinyConfig);
  const std::string train = "train " + (folder / "config.json") + with_level("L3") +
                            " --set compression.bits=2.5"
                            " --set compression.actnn.interval=2 --set train.epochs=4";
  REQUIRE(frugal(train + " --out " + (folder / "whole")).status == 0);
  // Stopped by a signal now and then, wherever that is.
  const Ran parts = shell("b=FRUGAL; c='" + train + " --resume --out " + (folder / "parts") +
                          "'; for t in 0.1 0.2 0.3 0.4; do timeout -s TERM $t $b $c; done; $b $c");
  REQUIRE(parts.status == 0);
  CHECK(read_file(folder / "whole/checkpoint/last.safetensors") ==
        read_file(folder / "parts/checkpoint/last.safetensors"));
}

TEST_CASE("bits by sample and tensor keep fewer bytes than raw ones, and all is in the run") {
  const TempFolder folder;
  write_file(folder / "config.json", kTinyConfig);
  const std::string train = "train " + (folder / "config.json");
  for (const char* level : {"L0", "L1", "L2", "L3"})
    REQUIRE(frugal(train + with_level(level) + " --out " + (folder / level)).status == 0);
  auto bytes = [&](const std::string& level) {
    return Json::parse(read_file(folder / level + "/summary.json"))
        .at("memory")
        .at("activation_bytes")
        .get<int64_t>();
  };
  CHECK(bytes("L3") < bytes("L2"));
  CHECK(bytes("L2") <= bytes("L1"));
  CHECK(bytes("L1") <= bytes("L0"));
}

TEST_CASE("a level in the configuration makes the policy of that level") {
  for (const char* level : {"L0", "L1", "L2", "L2.5", "L3"}) {
    CAPTURE(level);
    Config config = parse_config(Json::parse(fmt::format(
        R"({{"data": {{"name": "random"}}, "compression": {{"policy": "actnn", "level": "{}"}}}})",
        level)));
    resolve(config);
    const compress::Choice choice = make_choice(config.compression);
    const auto& of_level = std::get<compress::ActnnOptions>(
        compress::level(level, compress::PolicyKind::actnn).choice.policy);
    const auto& options = std::get<compress::ActnnOptions>(choice.policy);
    CHECK(options.average == of_level.average);
    CHECK(options.mixed == of_level.mixed);
    CHECK(options.by_sample == of_level.by_sample);
    CHECK(options.products_only == of_level.products_only);
    const auto policy = make_policy(choice, kCpu, 0);
    const auto* actnn = find_in<compress::ActnnPolicy>(*policy);
    REQUIRE(actnn != nullptr);
    CHECK(find_in<compress::Learner>(*policy) != nullptr);
    CHECK(actnn->average() == of_level.average);
    CHECK(actnn->learns_at(1) == of_level.mixed);
  }
}

TEST_CASE("keys that contradict a level of ActNN") {
  auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(has(complaint(R"({"policy": "actnn", "level": "CB1"})"), "compression.level"));
  CHECK(has(complaint(R"({"policy": "gact", "level": "L5"})"), "compression.level"));
  CHECK(has(complaint(R"({"policy": "actnn", "level": "L4"})"), "compression.offload"));
  CHECK(has(complaint(R"({"policy": "actnn", "level": "L2", "bits": 2.5})"),
            "compression.bits: expected a whole number with level L2, got 2.5"));
  CHECK(has(complaint(R"({"policy": "actnn", "level": "L3", "bits": 9})"),
            "compression.bits: expected 0, or 1 to 8 with the adaptive widths of policy actnn"));
  CHECK(has(complaint(R"({"policy": "actnn", "level": "L3", "bits": 0})"), "compression.bits"));
  CHECK(has(complaint(R"({"policy": "actnn", "bits": 2.5, "actnn": {"products_only": true}})"),
            "compression.actnn.products_only"));
  CHECK(complaint(R"({"policy": "actnn", "level": "L2", "bits": 2})").empty());
  CHECK(complaint(R"({"policy": "actnn", "level": "L3", "bits": 1.25})").empty());
}

}  // namespace frugal::apps
