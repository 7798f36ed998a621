// The rows of `frugal-lab gradient` round as the configuration says.
#include <doctest/doctest.h>

#include <map>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

struct Bench {
  TempFolder folder;
  Bench() {
    write_file(folder / "c.json", R"({"model": {"name": "mlp", "hidden": [128, 64]},
        "data": {"name": "random", "batch_size": 64, "shape": [8, 8, 1], "workers": 0,
                 "train_samples": 512}, "compression": {"advanced": {"min_elements": 96}}, "threads": 1})");
  }
  Ran run(const std::string& arguments, const std::string& bits = "--bits 2 ") const {
    return frugal_lab("gradient " + folder / "c.json" +
                      " --train-steps 2 --batches 8 --repeats 8 --json " + bits + arguments);
  }
  // The variance of each row.
  std::map<std::string, double> rows(const std::string& arguments, const char* list,
                                     const char* name) const {
    const Ran ran = run(arguments);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    std::map<std::string, double> found;
    const Json document = Json::parse(ran.out);
    for (const Json& row : document[list]) found[row[name]] = row["variance"]["value"];
    return found;
  }
};

}  // namespace

TEST_CASE("schemes round as `auto` would with their signs") {
  const Bench bench;
  const auto usual = bench.rows("", "schemes", "scheme");
  const auto drawn =
      bench.rows("--set compression.advanced.rounding=stochastic", "schemes", "scheme");
  REQUIRE(usual.size() == 5);
  for (const auto& [name, variance] : usual) {
    const auto& this_name = name;
    CAPTURE(this_name);
    CHECK(variance != drawn.at(name));
  }
}

TEST_CASE("policies round alike, but for AC-GC, which has its own rule") {
  const Bench bench;
  const auto usual = bench.rows("--policies", "policies", "policy");
  const auto drawn =
      bench.rows("--policies --set compression.advanced.rounding=stochastic", "policies", "policy");
  REQUIRE(usual.size() == 9);
  for (const auto& [name, variance] : usual) {
    const auto& this_name = name;
    CAPTURE(this_name);
    CHECK((variance == drawn.at(name)) == (name == "acgc, e = 1"));
  }
}

TEST_CASE("layers: the shares of all layers add up, and what stays whole adds no noise") {
  const Bench bench;
  const auto layers = [&](const std::string& arguments) {
    const Ran ran = bench.run("--layers " + arguments);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(ran.out)["layers"];
  };
  const Json usual = layers("");
  REQUIRE(usual.size() == 4);  // three linear layers, and all parameters
  double shares = 0;
  for (const Json& row : usual)
    if (row["layer"] != "all") shares += row["share"].get<double>();
  CHECK(usual.back()["layer"] == "all");
  CHECK(shares == doctest::Approx(1));
  CHECK(usual.back()["variance"]["value"].get<double>() > 1e-6);
  // Everything that this network packs is saved by these ops.
  const Json whole = layers("--whole linear,linear_relu,relu,cross_entropy");
  CHECK(whole.back()["variance"]["value"].get<double>() < 1e-6);
  // Widths are those that a policy learned, as in training: the greedy ones are 1, 2, 4 or 8 bits.
  const Json learned =
      layers("--set compression.gact.adaptive=true --set compression.gact.solver=greedy");
  CHECK(learned.back()["variance"]["value"] != usual.back()["variance"]["value"]);
  // Without --bits the width is that of the configuration, which may be a fraction.
  const Ran fraction = bench.run("--layers --set compression.bits=2.5", "");
  REQUIRE_MESSAGE(fraction.status == 0, fraction.err);
  const Json row = Json::parse(fraction.out)["layers"].back();
  CHECK(row["bits"] == 2.5);
  CHECK(row["variance"]["value"] < usual.back()["variance"]["value"]);
  for (const char* wrong :
       {"--whole linear", "--layers --policies", "--layers --set compression.policy=acgc",
        "--layers --set compression.memory_budget=3x"})
    CHECK(bench.run(wrong).status == 2);
}

// Such a graph is the only batch.
TEST_CASE("studies of a whole graph end, and have the squared gradient as their unit") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "gcn", "layers": 2, "width": 16},
      "data": {"name": "random_graph", "nodes": 300, "edges": 900, "features": 24, "classes": 4},
      "compression": {"bits": 2, "advanced": {"min_elements": 256}}, "threads": 1})");
  const std::string options = folder / "c.json" + " --json --train-steps 2 --batches 8 ";
  const auto printed = [](const Ran& ran) {
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    Json document = Json::parse(ran.out);
    CHECK(document["minibatch_variance"] == 0);
    CHECK(document["squared_gradient"].get<double>() > 0);
    CHECK(document["unit"] == "the squared gradient of the only batch");
    return document;
  };
  const auto lab = [&](const std::string& rest) {
    return printed(frugal_lab("gradient " + options + "--repeats 8 --bits 2 " + rest));
  };
  CHECK(lab("")["schemes"].size() == 3);
  CHECK(lab("--policies")["policies"].size() == 9);
  const Json layers = lab("--layers")["layers"];
  double shares = 0;
  for (const Json& row : layers) shares += row["share"].get<double>();
  CHECK(shares == doctest::Approx(2));  // the layers, and "all"
  const Json variance = printed(frugal("bench variance " + options + "--draws 16 --layers 1"));
  CHECK(variance["variance"]["value"].get<double>() > 0);
  for (const Json& layer : variance["layers"]) CHECK(layer["minibatch_variance"]["value"] == 0);
}

}  // namespace frugal::apps
