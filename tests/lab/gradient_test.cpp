#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

using namespace frugal::apps;

TEST_CASE("gradient gives a row for each scheme and width, and the bytes fall with both") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "resnet20"}, "data": {"name": "random",
      "batch_size": 8, "shape": [16, 16, 3], "workers": 0, "train_samples": 256},
      "compression": {"advanced": {"min_elements": 0}}, "threads": 1})");
  const Ran ran =
      frugal::apps::frugal_lab("gradient " + (folder / "c.json") +
                               " --train-steps 2 --batches 8 --repeats 8 --bits 4,2 --json");
  REQUIRE(ran.status == 0);
  const Json document = Json::parse(ran.out);
  REQUIRE(document["schemes"].size() == 10);
  double previous = 0;
  for (const Json& row : document["schemes"]) {
    CHECK(row["variance"]["value"] > 0);
    if (row["bits"] == 2) CHECK(row["activation_bytes"] < previous);
    previous = row["activation_bytes"];
  }
  // Recipes keep less than packing everything.
  CHECK(document["schemes"][2]["activation_bytes"] < document["schemes"][0]["activation_bytes"]);

  // Only what lies outside of blocks is packed there; the blocks' inputs are raw.
  for (const Json& row : document["schemes"]) {
    CHECK(row["checkpoints"] ==
          (row["scheme"] == "the same with checkpoints" || row["packed_blocks"] == true));
    CHECK(row["packed_blocks"] == (row["scheme"] == "every tensor packed, checkpoints, too"));
  }
  // Inputs of blocks in codes take less memory than raw ones.
  CHECK(document["schemes"][9]["activation_bytes"] < document["schemes"][7]["activation_bytes"]);
  CHECK(document["schemes"][7]["variance"]["value"] < document["schemes"][5]["variance"]["value"]);

  const Ran few = frugal::apps::frugal_lab("gradient " + (folder / "c.json") + " --repeats 2");
  CHECK(few.status == 2);
  CHECK(few.err.find("--repeats: expected at least 8") != std::string::npos);
}

TEST_CASE("gradient --layers recomputes blocks, whole or packed, as the configuration says") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "resnet20"}, "data": {"name": "random",
      "batch_size": 8, "shape": [8, 8, 3], "workers": 0, "train_samples": 128},
      "compression": {"bits": 2, "advanced": {"min_elements": 0}}, "threads": 1})");
  const auto variance = [&](const char* sets) {
    const Ran ran = frugal_lab("gradient " + (folder / "c.json") +
                               " --layers --train-steps 2 --batches 8 --repeats 8 --json" + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json document = Json::parse(ran.out);
    for (const Json& row : document["layers"])
      if (row["layer"] == "all") return row["variance"]["value"].get<double>();
    FAIL("no row of all layers");
    return 0.0;
  };
  const double kept = variance(""), whole = variance(" --set train.checkpointing=true"),
               packed = variance(
                   " --set train.checkpointing=true --set compression.advanced.recomputed=packed");
  // Blocks that keep their inputs whole round nothing; packed ones also round what they are
  // recomputed from.
  CHECK(whole < 0.5 * kept);
  CHECK(packed > 2 * whole);
}
