// `frugal plan --max --only`: the search for one configuration.
#include <doctest/doctest.h>

#include "apps/config/config.h"
#include "tests/apps/run.h"

namespace frugal::apps {

TEST_CASE("plan --max --only has the row of the configuration alone") {
  const TempFolder folder;
  const std::string file = folder / "c.json";
  write_file(file, R"({"model": {"name": "resnet20"}, "data": {"name": "random"}})");
  const std::string plan = "plan " + file + " --memory '60 MiB' --json --max batch";
  const Json all = Json::parse(frugal(plan).out), one = Json::parse(frugal(plan + " --only").out);
  REQUIRE(one.at("levels").size() == 1);
  CHECK(all.at("levels").size() > 1);
  CHECK(one.at("levels")[0] == all.at("levels")[0]);
  const Ran budget = frugal(plan + " --only --set compression.memory_budget=1/4");
  CHECK(budget.status == 2);
  CHECK_MESSAGE(
      budget.err.find("compression.memory_budget: expected none with --only") != std::string::npos,
      budget.err);
  CHECK(frugal("plan " + file + " --only").status == 2);
}

}  // namespace frugal::apps
