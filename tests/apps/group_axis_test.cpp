// compression.advanced.group_axis: groups along rows, from the configuration to the codes.
#include <doctest/doctest.h>

#include "apps/config/keys/config_error.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"
#include "compress/policies/fixed_policy.h"
#include "compress/quantize/quantize.h"
#include "tests/apps/run.h"

using namespace frugal;
using namespace frugal::apps;

namespace {

Config config_of(const Json& compression) {
  Config config = parse_config(Json{{"data", {{"name", "random"}}}, {"compression", compression}});
  resolve(config);
  return config;
}

}  // namespace

TEST_CASE("groups lie in a channel unless the configuration says along rows") {
  const auto axis = [](const Json& compression) {
    const auto policy = make_policy(make_choice(config_of(compression).compression), kCpu, 1);
    return dynamic_cast<const compress::FixedPolicy&>(*policy).codec().options().axis;
  };
  CHECK(axis({{"level", "L1.2"}}) == compress::GroupAxis::column);
  CHECK(axis({{"level", "L1.2"}, {"advanced", {{"group_axis", "row"}}}}) ==
        compress::GroupAxis::row);
  CHECK_THROWS_AS(config_of({{"advanced", {{"group_axis", "rows"}}}}), ConfigError);
}

TEST_CASE("policies whose groups are channels' refuse groups along rows") {
  for (const char* policy : {"actnn", "acgc"}) {
    CAPTURE(policy);
    const Config config = config_of({{"policy", policy}, {"advanced", {{"group_axis", "row"}}}});
    std::string path;
    try {
      make_policy(make_choice(config.compression), kCpu, 1);
    } catch (const ConfigError& error) {
      path = error.path();
    }
    CHECK(path == "compression.advanced.group_axis");
  }
}

TEST_CASE("a run trains with groups along rows") {
  const TempFolder folder;
  Json config = Json::parse(kTinyConfig);
  config["compression"] = {{"level", "L1.1"},
                           {"advanced", {{"min_elements", 96}, {"group_axis", "row"}}}};
  config["train"]["epochs"] = 1;
  write_file(folder / "c.json", config.dump());
  const Ran ran = apps::frugal("train " + folder / "c.json" + " --json --out " + folder / "out");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(Json::parse(ran.out)["memory"]["packed_bytes"] > 0);
}
