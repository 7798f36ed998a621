// The studies of what compression does to activations and gradients, at their smallest.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

constexpr const char* kConfig = R"({
  "model": {"name": "mlp", "hidden": [64, 32]},
  "data": {"name": "random", "shape": [8, 8, 1], "classes": 4, "batch_size": 32,
           "train_samples": 256, "workers": 0},
  "compression": {"advanced": {"min_elements": 96}}, "threads": 1})";

Json study(const std::string& what, const std::string& options) {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const std::string command = fmt::format("{} {} {}", what, folder / "c.json", options);
  const Ran text = frugal_lab(command);
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(text.out.find("mlp, batch 32, after 2 steps") != std::string::npos);
  const Ran ran = frugal_lab(command + " --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

}  // namespace

TEST_CASE("bounds: errors stay within what was allowed") {
  const Json document = study("bounds", "--train-steps 2 --repeats 2");
  CHECK(document["growth"] == 1);
  std::set<std::string> kinds;
  for (const Json& row : document["rows"]) {
    const std::string kind = row["bounds"];
    kinds.insert(kind);
    CHECK(row["bits"].get<double>() > 0);
    CHECK(row["largest_error"].get<double>() > 0);
    if (kind == "worst") CHECK(row["largest_parameter_error"].get<double>() <= 1);
  }
  CHECK(kinds == std::set<std::string>{"expected", "published", "worst"});
}

TEST_CASE("sensitivity: samples measure about what whole batches do") {
  const Json document =
      study("sensitivity",
            "--train-steps 2 --references 2 --repeats 8 --set compression.gact.samples=16");
  CHECK(document["samples"] == 16);
  CHECK(document["tensors"].size() >= 2);
  CHECK(document["ratio"]["median"].get<double>() > 0.3);
  CHECK(document["ratio"]["median"].get<double>() < 3);
  CHECK(document["average_bits"].get<double>() <= 4);
  for (const char* widths : {"uniform", "allocated"}) {
    const Json& row = document[widths];
    CHECK(row["predicted_by_reference"].get<double>() < 2 * row["drawn"].get<double>());
    CHECK(row["predicted_by_reference"].get<double>() > 0.5 * row["drawn"].get<double>());
  }
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const Ran few = frugal_lab("sensitivity " + folder / "c.json" + " --repeats 2");
  CHECK(few.status == 2);
  CHECK(few.err.find("at least 8 draws") != std::string::npos);
}

TEST_CASE("spmm counts both directions of every edge, and the loops") {
  const Ran ran = frugal_lab("spmm --nodes 100 --repeats 1 --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json report = Json::parse(ran.out);
  CHECK(report["entries"].get<double>() == doctest::Approx(2 * 688 + 100).epsilon(0.03));
  CHECK(report["results"].size() == 3);
  CHECK(frugal_lab("spmm --dtype bf16").status == 2);
}

}  // namespace frugal::apps
