// Cells that start from the weights of a training that runs once for all of them.
#include <doctest/doctest.h>

#include "apps/reproduce/cells.h"
#include "apps/reproduce/runner.h"
#include "tests/apps/reproduce/tables.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// Two columns, which start from the weights of a training of two epochs.
Json pretrained_table() {
  Json table = training_table();
  table["columns"] = Json::parse(R"([
    {"name": "4 bits", "as_published": null, "sets": {"compression.bits": 4}},
    {"name": "2 bits", "as_published": null, "sets": {"compression.bits": 2}}])");
  table["scales"]["smoke"]["seeds"] = 1;
  table["pretraining"] = {{"base", table["base"]}, {"sets", {{"train.epochs", 2}}}};
  return table;
}

}  // namespace

TEST_CASE("the cells of a row start from one pre-training, which runs once" * skip) {
  const TempFolder folder;
  const std::vector<Cell> cells = cells_of(written(folder, pretrained_table()), Scale::smoke);
  REQUIRE(cells.size() == 2);
  REQUIRE(cells[0].pretraining != nullptr);
  CHECK(cells[0].pretraining->hash == cells[1].pretraining->hash);
  const std::string out = folder / "out";
  const std::string base = run_of(*cells[0].pretraining, out, 1);

  const Ran ran = frugal(command(folder, "--jobs 2"));
  CHECK_MESSAGE(ran.status == 0, ran.err);
  CHECK_MESSAGE(count_of(ran.err, ", pre-training, ours") == 1, ran.err);
  CHECK(count_of(ran.err, " s)") == 3);
  for (const Cell& cell : cells) {
    const Json config = Json::parse(read_file(run_of(cell, out, 1) + "/config.json"));
    CHECK(config.at("model").at("weights") == base);
  }
  CHECK(count_of(frugal(command(folder)).err, " s)") == 0);  // nothing runs again

  // The folder of the pre-training is gone, and a new cell needs it: it runs again, and is the
  // same.
  const std::string weights = read_file(base + "/model.safetensors");
  fs::remove_all(base);
  Json more = pretrained_table();
  more["columns"].push_back(
      {{"name", "8 bits"}, {"as_published", nullptr}, {"sets", {{"compression.bits", 8}}}});
  written(folder, more);
  const Ran again = frugal(command(folder));
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK_MESSAGE(count_of(again.err, ", pre-training, ours") == 1, again.err);
  CHECK_MESSAGE(count_of(again.err, "first, 8 bits, ours") == 1, again.err);
  CHECK(count_of(again.err, "first, 4 bits, ours") == 0);
  CHECK(read_file(base + "/model.safetensors") == weights);

  const Ran commands = frugal(command(folder, "--commands"));
  CHECK(count_of(commands.out, "model.weights=") == 3);
  CHECK(count_of(commands.out, "pre-training, ours\n") == 1);
}

TEST_CASE("another pre-training makes other cells" * skip) {
  const TempFolder folder;
  const std::vector<Cell> cells = cells_of(written(folder, pretrained_table()), Scale::smoke);
  Json longer = pretrained_table();
  longer["rows"][0]["pretraining"] = {{"sets", {{"train.epochs", 3}}}};
  const std::vector<Cell> others = cells_of(written(folder, longer), Scale::smoke);
  CHECK(others[0].pretraining->config.train.epochs == 3);
  CHECK(others[0].hash != cells[0].hash);
  Json scaled = pretrained_table();
  scaled["scales"]["smoke"]["pretraining"] = {{"sets", {{"train.epochs", 3}}}};
  CHECK(cells_of(written(folder, scaled), Scale::smoke)[0].hash == others[0].hash);
  Json none = pretrained_table();
  none.erase("pretraining");
  CHECK(cells_of(written(folder, none), Scale::smoke)[0].hash != cells[0].hash);
}

TEST_CASE("a pre-training that fails, or whose data is not there, ends its cells with a reason" *
          skip) {
  const TempFolder folder;
  Json table = pretrained_table();
  table["pretraining"]["sets"] = {{"optim.lr", 10000}, {"optim.clip_norm", 0}, {"train.epochs", 1}};
  written(folder, table);
  const Ran ran = frugal(command(folder));
  CHECK(ran.status == 1);
  CHECK_MESSAGE(count_of(ran.err, "2 bits, ours: its pre-training failed: first, pre-training") > 0,
                ran.err);
  table["pretraining"]["base"]["data"] = {{"name", "csv"}, {"dir", folder / "nowhere.csv"}};
  table["pretraining"]["sets"] = Json::object();
  written(folder, table);
  const Ran lacks = frugal(command(folder));
  CHECK(lacks.status == 0);
  const std::string said = lacks.out + lacks.err;
  CHECK_MESSAGE(has(said, "nowhere.csv"), said);
}

TEST_CASE("a wrong pretraining is named with its place") {
  const TempFolder folder;
  Json table = small_table();
  table["pretraining"] = Json::object();
  CHECK_THROWS_WITH_AS(written(folder, table),
                       doctest::Contains("small.json: pretraining: expected none"), ConfigError);
  table = pretrained_table();
  table["pretraining"]["seeds"] = 2;
  CHECK_THROWS_WITH_AS(written(folder, table),
                       doctest::Contains("small.json: pretraining.seeds: unknown key"),
                       ConfigError);
  table["pretraining"] = Json::object();
  CHECK_THROWS_WITH_AS(cells_of(written(folder, table), Scale::smoke),
                       doctest::Contains("first, pre-training, scale smoke"), ConfigError);
  table["pretraining"] = {{"base", table["base"]}, {"sets", {{"train.epocs", 2}}}};
  CHECK_THROWS_WITH_AS(cells_of(written(folder, table), Scale::smoke),
                       doctest::Contains("train.epocs"), ConfigError);
}

}  // namespace frugal::apps
