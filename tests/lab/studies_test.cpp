// The benchmarks of what compression does to activations and gradients, at their smallest.
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

Json bench(const std::string& what, const std::string& options) {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const std::string command = fmt::format("bench {} {} {}", what, folder / "c.json", options);
  const Ran text = frugal(command);
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(text.out.find("mlp, batch 32, after 2 steps") != std::string::npos);
  const Ran ran = frugal(command + " --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

}  // namespace

TEST_CASE("bench levels: ways to round beside each other, the first of each width the unit") {
  const Json document = bench("levels", "--train-steps 2 --batches 8 --repeats 8 --bits 4,2");
  CHECK(document["minibatch_variance"].get<double>() > 0);
  CHECK(document["elements"].get<int64_t>() > 0);
  std::set<int> widths;
  double wide = 0, narrow = 0;
  for (const Json& row : document["schemes"]) {
    const int bits = row["bits"];
    const bool first = widths.insert(bits).second;
    if (first) CHECK(row["squared_error"] == 1);
    CHECK(row["bits_per_element"].get<double>() > 0);
    CHECK(row["squared_error"].get<double>() > 0);
    if (!first || !row.contains("gradient_variance")) continue;
    (bits == 4 ? wide : narrow) = row["gradient_variance"].get<double>();
  }
  CHECK(widths == std::set<int>{2, 4});
  CHECK(wide > 0);
  CHECK(narrow > 4 * wide);
}

TEST_CASE("bench bounds: errors stay within what was allowed") {
  const Json document = bench("bounds", "--train-steps 2 --repeats 2");
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

TEST_CASE("bench sensitivity: samples measure about what whole batches do") {
  const Json document =
      bench("sensitivity",
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
  for (const char* name : {"levels", "sensitivity"}) {
    const Ran few = frugal(fmt::format("bench {} {} --repeats 2", name, folder / "c.json"));
    CHECK(few.status == 2);
    CHECK(few.err.find("at least 8 draws") != std::string::npos);
  }
}

}  // namespace frugal::apps
