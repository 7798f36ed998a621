// Successive halving as a cell: which trainings it needs, what it chooses and what it costs.
#include "apps/reproduce/search.h"

#include <doctest/doctest.h>

#include "apps/reproduce/runner.h"
#include "apps/reproduce/writers.h"
#include "tests/apps/reproduce/tables.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// A row of one training, and a search over four widths, of which the first is that training.
Json search_table() {
  Json table = training_table();
  table["columns"] = Json::parse(R"([{"name": "wide", "ours": null}])");
  table["base"]["train"]["epochs"] = 8;
  table["show"] = {"accuracy", "cost"};
  table["scales"]["smoke"]["seeds"] = 1;
  table["rows"] = Json::parse(R"([
    {"name": "first", "sets": {"compression.bits": 8}},
    {"name": "found", "search": {
       "candidates": [{"name": "8 bits", "sets": {"compression.bits": 8}},
                      {"name": "4 bits", "sets": {"compression.bits": 4}},
                      {"name": "3 bits", "sets": {"compression.bits": 3}},
                      {"name": "2 bits", "sets": {"compression.bits": 2}}],
       "shares": [0.25, 0.5, 1], "tolerance": 1}}])");
  return table;
}

void put(ResultStore& store, const Cell& cell, double accuracy, double activation) {
  StoredResult result;
  result.values = {
      {"accuracy", accuracy}, {"activation", activation}, {"epochs", cell.config.train.epochs}};
  result.seconds = 3;
  store.put(key_of(cell, 1), result);
}

std::vector<std::string> titles(const std::vector<const Cell*>& cells) {
  std::vector<std::string> all;
  for (const Cell* cell : cells) all.push_back(cell->row);
  return all;
}

}  // namespace

TEST_CASE("candidates near the best are ordered by their bytes, the others by accuracy") {
  const auto of = [](double accuracy, double activation) {
    return Json{{"accuracy", accuracy}, {"activation", activation}};
  };
  const std::vector<Json> values = {of(90, 8), of(89.8, 4), of(80, 2), of(89.5, 3), of(85, 2.5)};
  CHECK(ranked(values, 0.5) == std::vector<size_t>{3, 1, 0, 4, 2});
  CHECK(ranked(values, 0) == std::vector<size_t>{0, 1, 3, 4, 2});
  CHECK(ranked({of(1, 1), of(1, 1)}, 0) == std::vector<size_t>{0, 1});
}

TEST_CASE("a search asks for the trainings of one round after the other" * skip) {
  const TempFolder folder;
  const std::vector<Cell> cells = cells_of(written(folder, search_table()), Scale::smoke);
  REQUIRE(cells.size() == 2);
  const Cell& found = cells[1];
  REQUIRE(found.search != nullptr);
  CHECK(found.hash != cells[0].hash);
  const auto& rounds = found.search->rounds;
  CHECK(rounds[2][0].hash == cells[0].hash);  // it is that training, and is not done twice
  ResultStore store(folder / "results.sqlite");
  CHECK(titles(state_of(found, 1, store).missing) ==
        std::vector<std::string>{"found, 8 bits, 2 epochs", "found, 4 bits, 2 epochs",
                                 "found, 3 bits, 2 epochs", "found, 2 bits, 2 epochs"});
  put(store, rounds[0][0], 50, 8);
  put(store, rounds[0][1], 40, 4);
  put(store, rounds[0][3], 20, 2);
  CHECK(titles(state_of(found, 1, store).missing) ==
        std::vector<std::string>{"found, 3 bits, 2 epochs"});
  put(store, rounds[0][2], 49.5, 3);  // as good as the best
  CHECK(titles(state_of(found, 1, store).missing) ==
        std::vector<std::string>{"found, 3 bits, 4 epochs", "found, 8 bits, 4 epochs"});
  put(store, rounds[1][2], 60, 3);
  put(store, rounds[1][0], 60.5, 8);
  CHECK(titles(state_of(found, 1, store).missing) ==
        std::vector<std::string>{"found, 3 bits, 8 epochs"});
  CHECK_FALSE(state_of(found, 1, store).result.has_value());
  put(store, rounds[2][2], 70, 3);
  const SearchState done = state_of(found, 1, store);
  CHECK(done.missing.empty());
  REQUIRE(done.result.has_value());
  CHECK(done.result->values.at("accuracy") == 70);
  CHECK(done.result->values.at("choice") == "3 bits");
  CHECK(done.result->values.at("cost") == (4 * 2 + 2 * 4 + 8) / 8.0);
  CHECK(done.result->seconds == 7 * 3);
  CHECK(state_of(found, 2, store).missing.size() == 4);  // another seed has results of its own
}

TEST_CASE("a search of three candidates keeps two, and a single one goes to the last round" *
          skip) {
  const TempFolder folder;
  Json json = search_table();
  json["rows"][1]["search"]["candidates"].erase(3);
  json["rows"][1]["search"]["shares"] = {0.01, 0.25, 0.5, 1};
  const Cell found = cells_of(written(folder, json), Scale::smoke)[1];
  const auto& rounds = found.search->rounds;
  CHECK(rounds[0][0].config.train.epochs == 1);  // at least one
  ResultStore store(folder / "results.sqlite");
  for (size_t i = 0; i < 3; ++i) put(store, rounds[0][i], 10 - static_cast<double>(i) * 5, 1);
  CHECK(state_of(found, 1, store).missing.size() == 2);
  for (size_t i = 0; i < 2; ++i) put(store, rounds[1][i], 10 - static_cast<double>(i) * 5, 1);
  CHECK(titles(state_of(found, 1, store).missing) ==
        std::vector<std::string>{"found, 8 bits, 8 epochs"});
  // Rounds of the same length have the same trainings, which count once.
  json["base"]["train"]["epochs"] = 1;
  const Cell one = cells_of(written(folder, json), Scale::smoke)[1];
  for (const Cell& training : one.search->rounds[0]) put(store, training, 5, 1);
  REQUIRE(state_of(one, 1, store).result.has_value());
  CHECK(state_of(one, 1, store).result->values.at("cost") == 3);
}

TEST_CASE("a search that is killed goes on, and its trainings are kept" * skip) {
  const TempFolder folder, whole;
  written(folder, search_table());
  written(whole, search_table());
  const pid_t runner = start(command(folder, "--jobs 2 --json"));
  const auto has_result = [&] {
    std::error_code none;
    if (!fs::exists(folder / "out/results.sqlite", none)) return false;
    const ResultStore store(folder / "out/results.sqlite");
    const Cell found = cells_of(read_table(folder / "small.json"), Scale::smoke)[1];
    return store.has(key_of(found.search->rounds[0][0], 1));
  };
  for (int i = 0; i < 2000 && !has_result(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  kill(runner, SIGKILL);
  wait_for(runner);
  const Ran resumed = frugal(command(folder, "--jobs 2 --json"));
  CHECK_MESSAGE(resumed.status == 0, resumed.err);
  CHECK(resumed.err.find("found, 8 bits, 2 epochs") == std::string::npos);  // it was kept
  const Ran plain = frugal(command(whole, "--jobs 1 --json"));
  CHECK_MESSAGE(plain.status == 0, plain.err);
  CHECK(count_of(plain.err, " s)") > 0);
  const auto values = [](const Ran& ran) {
    Json all = Json::parse(ran.out).at(0).at("lines").at(1).at("values");
    for (Json& metric : all) metric["as_published"].erase("command");
    return all;
  };
  CHECK(values(resumed) == values(plain));
  CHECK(values(plain).at("cost").at("as_published").at("mean") == 3);
  CHECK(Json::parse(plain.out)
            .at(0)
            .at("lines")
            .at(0)
            .at("values")
            .at("cost")
            .at("as_published")
            .at("mean") == 1);
  CHECK(read_file(whole / "out/small.md").find("Chosen by found, as published: ") !=
        std::string::npos);
  const Ran again = frugal(command(whole));
  CHECK(count_of(again.err, " s)") == 0);  // nothing is run again
  const Ran commands = frugal(command(whole, "--commands"));
  CHECK(commands.out.find("\nfrugal reproduce ") != std::string::npos);
}

TEST_CASE("a search whose training fails says so, and stops no other cell" * skip) {
  const TempFolder folder;
  Json json = search_table();
  // The loss is not finite then.
  json["rows"][1]["search"]["candidates"][1]["sets"]["optim.lr"] = 10000;
  json["rows"][1]["search"]["candidates"][1]["sets"]["optim.clip_norm"] = 0;
  written(folder, json);
  const Ran ran = frugal(command(folder, "--jobs 2"));
  CHECK(ran.status == 1);
  CHECK_MESSAGE(
      ran.err.find("a training of the search failed: found, 4 bits, 2 epochs") != std::string::npos,
      ran.err);
  CHECK(ran.out.find("not run") != std::string::npos);
}

}  // namespace frugal::apps
