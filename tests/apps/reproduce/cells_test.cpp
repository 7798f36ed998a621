// Cells: which there are, what they set, and what their hashes tell apart.
#include <doctest/doctest.h>

#include "apps/reproduce/cells.h"
#include "apps/reproduce/measures.h"
#include "apps/reproduce/runner.h"
#include "apps/reproduce/view.h"
#include "core/words/quoted.h"
#include "tests/apps/reproduce/tables.h"

namespace frugal::apps {
namespace {

std::vector<std::string> titles(const std::vector<Cell>& cells) {
  std::vector<std::string> all;
  for (const Cell& cell : cells) all.push_back(cell.title());
  return all;
}

}  // namespace

TEST_CASE("cells are rows by columns by ways, and a scale may leave some out") {
  const TempFolder folder;
  Json json = small_table();
  CHECK(titles(cells_of(written(folder, json), Scale::full)) ==
        std::vector<std::string>{"first, 4 bits, as published", "first, 4 bits, ours",
                                 "first, 2 bits, as published", "second, 4 bits, as published",
                                 "second, 4 bits, ours", "second, 2 bits, as published"});
  CHECK(cells_of(written(folder, json), Scale::smoke).size() == 3);
  json["scales"]["smoke"]["columns"] = {"2 bits"};
  CHECK(titles(cells_of(written(folder, json), Scale::smoke)) ==
        std::vector<std::string>{"first, 2 bits, as published"});
  json["rows"][1]["columns"] = {"4 bits"};
  json["rows"][0]["unavailable"] = "it is lost";
  CHECK(titles(cells_of(written(folder, json), Scale::full)) ==
        std::vector<std::string>{"second, 4 bits, as published", "second, 4 bits, ours"});
}

TEST_CASE("a place moves the cells that train, and their results stay the table's") {
  const TempFolder folder;
  const auto has = [](const Cell& cell, const char* set) {
    return std::find(cell.sets.begin(), cell.sets.end(), set) != cell.sets.end();
  };
  const TableFile trains = written(folder, training_table());
  const Cell here = cells_of(trains, Scale::smoke).front();
  const Cell there = cells_of(trains, Scale::smoke, 0, {"cuda", "tf32"}).front();
  for (const char* set : {"device=cuda", "precision=tf32", "cuda_graphs=true"}) {
    CHECK_FALSE_MESSAGE(has(here, set), set);
    CHECK_MESSAGE(has(there, set), set);
  }
  CHECK(there.config.run.on_cuda());
  CHECK(there.hash == here.hash);
  // What is counted on meta stays there.
  const Cell counted =
      cells_of(written(folder, small_table()), Scale::smoke, 0, {"cuda", "tf32"}).front();
  CHECK(counted.config.run.device == "meta");
  CHECK_THROWS_WITH_AS(cells_of(trains, Scale::smoke, 0, {"gpu9", ""}), doctest::Contains("device"),
                       ConfigError);
}

TEST_CASE("a base that is written again stays whole for those who read it") {
  const TempFolder folder;
  const Cell cell = cells_of(written(folder, small_table()), Scale::full).front();
  save_base(cell, folder / "out");
  const std::string base = base_of(cell, folder / "out"), same = folder / "same.json";
  std::filesystem::create_hard_link(base, same);
  save_base(cell, folder / "out");
  CHECK(read_file(base) == read_file(same));
  CHECK_FALSE(std::filesystem::equivalent(base, same));  // another file took its place
}

TEST_CASE("a cell's keys come from the table, the scale, the row, the column and the way") {
  const TempFolder folder;
  Json json = small_table();
  const auto batches = [&] {
    std::vector<int64_t> all;
    for (const Cell& cell : cells_of(written(folder, json), Scale::full))
      all.push_back(cell.config.data.batch_size);
    return all;
  };
  CHECK(batches() == std::vector<int64_t>{512, 512, 512, 1024, 1024, 1024});
  json["ours"] = {{"data.batch_size", 64}};
  CHECK(batches() == std::vector<int64_t>{512, 64, 512, 1024, 64, 1024});
  json["rows"][1]["sets"]["data.batch_size"] = nullptr;  // the scale's is taken away, too
  json.erase("ours");
  CHECK(batches() == std::vector<int64_t>{512, 512, 512, 256, 256, 256});
  const Cell cell = cells_of(written(folder, json), Scale::full)[0];
  CHECK_FALSE(cell.config.compression.recipes);
  CHECK(cell.config.compression.bits == 4);
}

TEST_CASE("a cell whose configuration is wrong is named") {
  const TempFolder folder;
  Json json = small_table();
  json["columns"][0]["sets"]["compression.bit"] = 4;
  CHECK_THROWS_WITH_AS(cells_of(written(folder, json), Scale::full),
                       doctest::Contains("small.json: first, 4 bits, as published, scale full: "
                                         "compression.bit: unknown key"),
                       ConfigError);
  json = small_table();
  json["rows"][1]["sets"]["model.jump"] = "cat";  // nothing reads it
  CHECK_THROWS_WITH_AS(cells_of(written(folder, json), Scale::full),
                       doctest::Contains("second, 4 bits, as published, scale full: model.jump"),
                       ConfigError);
  json = small_table();
  json["base"] = "none.json";
  CHECK_THROWS_WITH_AS(cells_of(written(folder, json), Scale::full), doctest::Contains("none.json"),
                       ConfigError);
}

TEST_CASE("a hash tells apart what changes results, and nothing else") {
  const TempFolder folder;
  Json json = training_table();
  const auto hash = [&] { return cells_of(written(folder, json), Scale::smoke)[0].hash; };
  const std::string before = hash();
  json["sets"] = {{"threads", 2}, {"data.workers", 0}, {"seed", 7}};
  json["title"] = "Another";
  CHECK(hash() == before);
  json["sets"]["optim.lr"] = 0.5;
  CHECK(hash() != before);
  json["sets"].erase("optim.lr");
  json["kind"] = "variance";
  json["show"] = {"variance"};
  const std::string variance = hash();
  CHECK(variance != before);
  json["measure"] = {{"draws", 9}};
  CHECK(hash() != variance);
}

TEST_CASE("a hash of a step's memory tells apart what a loader holds ahead") {
  const TempFolder folder;
  Json json = small_table();
  const auto hash = [&] { return cells_of(written(folder, json), Scale::smoke)[0].hash; };
  const std::string before = hash();
  json["sets"] = {{"seed", 7}};
  CHECK(hash() == before);
  json["sets"] = {{"data.workers", 0}};
  CHECK(hash() != before);
}

TEST_CASE("a hash tells apart profiles by what is in them, which lie beside the table") {
  const TempFolder folder, other;
  Json json = small_table();
  json["as_published"] = {{"compression.advanced.profile", "widths/small.json"}};
  const auto cell = [&](const TempFolder& place, const char* text) {
    std::filesystem::create_directories(place / "widths");
    write_file(place / "widths/small.json", text);
    return cells_of(written(place, json), Scale::full)[0];
  };
  const Cell first = cell(folder, R"({"runs": [1]})");
  CHECK(first.config.compression.profile == folder / "widths/small.json");
  CHECK(cell(other, R"({ "runs": [1] })").hash == first.hash);
  CHECK(cell(folder, R"({"runs": [2]})").hash != first.hash);
  json["as_published"] = Json::object();
  CHECK(cell(folder, "{}").hash != first.hash);
}

// A key that is new in the program must not change it: what was measured would have to be measured
// again. It changes with the table above, with kTinyConfig and with kDefaults of cells.cpp.
TEST_CASE("a hash stays from one version of the program to the next") {
  const TempFolder folder;
  const Cell cell = cells_of(written(folder, training_table()), Scale::smoke)[0];
  CHECK(cell.hash == "adba397fa4f6a122f4c527174e95dfe1cb72c19106dabf4baaed88795f1b7286");
}

// The order of their batches changed, so trainings with texts of many lengths were measured anew.
TEST_CASE("a hash of a training with texts tells their order, and no other hash does") {
  const TempFolder folder;
  Json json = training_table();
  json["base"] =
      Json::parse(R"({"model": {"name": "bert_tiny"}, "data": {"name": "sst2", "batch_size": 4}})");
  json["sets"] = Json::object();
  const auto hash = [&] { return cells_of(written(folder, json), Scale::smoke)[0].hash; };
  CHECK(hash() == "6d2cfad8f23e87d66cea569e88223da294a17530095774e2d0fea05fcd7f7207");
  json["base"] = Json::parse(
      R"({"model": {"name": "gpt2", "layers": 1}, "data": {"name": "tiny_shakespeare"}})");
  // Windows of one length.
  CHECK(hash() == "77e8d0f869cb828952bf9543a183663714a76dedaf15c1d0a5321161c82c8a0e");
}

TEST_CASE("columns that show parts of values share their runs") {
  const TempFolder folder;
  Json json = training_table();
  json["kind"] = "variance";
  json["show"] = {"variance"};
  json["measure"] = {{"layers", 1}};
  json["columns"] = Json::parse(R"([{"name": "whole"}, {"name": "one", "part": "conv1"}])");
  const std::vector<Cell> cells = cells_of(written(folder, json), Scale::smoke);
  REQUIRE(cells.size() == 4);
  CHECK(cells[2].part == "conv1");
  CHECK(cells[0].hash == cells[2].hash);
  if (!ResultStore::available()) return;
  ResultStore store(folder / "results.sqlite");
  StoredResult result;
  result.values = {{"variance", 4}, {"variance:conv1", 3}};
  store.put(key_of(cells[0], 1), result);
  const View view = view_of(read_table(folder / "small.json"), store, "out");
  REQUIRE(view.lines.size() == 2);
  CHECK(view.lines[0].cells.at(Way::as_published).values.at("variance").mean == 4);
  CHECK(view.lines[1].cells.at(Way::as_published).values.at("variance").mean == 3);
}

TEST_CASE("commands are words of a shell, and name seeds where runs have them") {
  CHECK(shell_line({"a", "b c", "it's", ""}) == "a 'b c' 'it'\\''s' ''");
  const TempFolder folder;
  const Cell memory = cells_of(written(folder, small_table()), Scale::smoke)[0];
  const auto words = command_of(memory, "out", 0);
  CHECK(words[0] == "bench");
  CHECK(words[3] == "--variant");
  CHECK(words[4] == "cell: compression.bits=4 compression.recipes=false");
  CHECK(words.back() == "--json");
  Json json = training_table();
  const Cell training = cells_of(written(folder, json), Scale::smoke)[0];
  CHECK(training.seeds == 2);
  CHECK(cells_of(written(folder, json), Scale::smoke, 5)[0].seeds == 5);
  const std::string line = shell_line(command_of(training, "out", 2));
  CHECK(line.find("--set seed=2") != std::string::npos);
  CHECK(line.find("--resume") != std::string::npos);
  CHECK(line.find("--set threads=1") != std::string::npos);
  json["rows"][0]["seeds"] = 3;
  CHECK(cells_of(written(folder, json), Scale::smoke)[0].seeds == 3);
}

}  // namespace frugal::apps
