// Tables of `frugal reproduce`: what is wrong in a file is named with its place, and the shipped
// ones are right.
#include <doctest/doctest.h>

#include <functional>

#include "apps/reproduce/cells.h"
#include "apps/reproduce/measures.h"
#include "tests/apps/reproduce/tables.h"

namespace frugal::apps {
namespace {

Json search(int candidates, const std::vector<double>& shares) {
  Json all = Json::array();
  for (int i = 0; i < candidates; ++i) all.push_back({{"name", std::to_string(i)}});
  return {{"candidates", all}, {"shares", shares}};
}

}  // namespace

TEST_CASE("a table's file is read as it is written") {
  const TempFolder folder;
  const TableFile table = written(folder, small_table());
  CHECK(table.name == "small");
  CHECK(table.kind == CellKind::memory);
  CHECK(table.show == std::vector<std::string>{"activation", "peak"});
  REQUIRE(table.rows.size() == 2);
  REQUIRE(table.rows[0].published.size() == 1);
  CHECK(table.rows[0].published[0].value == 1.5);
  CHECK(table.rows[0].published[0].where == "table 2");
  CHECK(table.scales.at(Scale::full).hours == 1);
  CHECK(table.scale_for(Scale::smoke) == Scale::smoke);
  CHECK(table.scale_for(Scale::reduced) == Scale::full);
  Json without = small_table();
  without["scales"].erase("full");
  CHECK_FALSE(written(folder, without).scale_for(Scale::reduced).has_value());
}

TEST_CASE("what is wrong in a table's file is named with its place") {
  const TempFolder folder;
  struct Mistake {
    std::function<void(Json&)> make;
    const char* said;
  };
  const Mistake mistakes[] = {
      {[](Json& t) { t["colums"] = 1; },
       "small.json: colums: unknown key; the nearest is 'columns'"},
      {[](Json& t) { t.erase("title"); }, "small.json: title: expected a value"},
      {[](Json& t) { t["text"] = 3; }, "small.json: text: expected a text"},
      {[](Json& t) { t["kind"] = "speed"; }, "small.json: kind: expected one of memory"},
      {[](Json& t) { t["base"] = 3; }, "small.json: base: expected the name"},
      {[](Json& t) { t["show"] = {"size"}; }, "small.json: show: expected one of activation"},
      {[](Json& t) { t["show"] = Json::array(); }, "small.json: show: expected a list of metrics"},
      {[](Json& t) { t["rows"] = Json::array(); }, "small.json: rows: expected at least one row"},
      {[](Json& t) { t["rows"] = 3; }, "small.json: rows: expected a list of objects"},
      {[](Json& t) { t["rows"][1] = 3; }, "small.json: rows[1]: expected an object"},
      {[](Json& t) { t["rows"][1]["name"] = "first"; },
       "small.json: rows: expected different names"},
      {[](Json& t) { t["rows"][0]["set"] = 1; }, "small.json: rows[0].set: unknown key"},
      {[](Json& t) {
         t["rows"][0]["sets"] = {{"data", {{"batch_size", 1}}}};
       },
       "small.json: rows[0].sets.data: expected a value: a key is written with dots"},
      {[](Json& t) { t["rows"][0]["columns"] = {"8 bits"}; },
       "small.json: rows[0].columns: expected one of 4 bits, 2 bits"},
      {[](Json& t) { t["rows"][0]["published"][0]["column"] = "8 bits"; },
       "small.json: rows[0].published[0].column: expected one of"},
      {[](Json& t) { t["rows"][0]["published"][0]["metric"] = "time"; },
       "small.json: rows[0].published[0].metric: expected one of"},
      {[](Json& t) { t["rows"][0]["published"][0]["unit"] = "XB"; },
       "small.json: rows[0].published[0].unit: expected one of"},
      {[](Json& t) { t["rows"][0]["published"][0].erase("where"); },
       "small.json: rows[0].published[0].where: expected a value"},
      {[](Json& t) { t["rows"][0]["published"][0]["value"] = "much"; },
       "small.json: rows[0].published[0].value: expected a number"},
      {[](Json& t) { t["rows"][1]["unavailable"] = "no"; },
       "small.json: rows[1].unavailable: expected a published value beside it"},
      {[](Json& t) { t["rows"] = {t["rows"][0]}, t["rows"][0]["unavailable"] = "no"; },
       "small.json: rows: expected a row that can be measured"},
      {[](Json& t) {
         t["measure"] = {{"draws", 3}};
       },
       "small.json: measure: expected one of"},
      {[](Json& t) {
         t["kind"] = "throughput", t["measure"] = {{"repeats", 0}};
       },
       "small.json: measure.repeats: expected a whole number"},
      {[](Json& t) { t["scales"] = Json::object(); }, "small.json: scales: expected at least one"},
      {[](Json& t) { t["scales"]["huge"] = 1; }, "small.json: scales.huge: unknown key"},
      {[](Json& t) { t["scales"]["full"].erase("needs"); },
       "small.json: scales.full.needs: expected a value"},
      {[](Json& t) { t["scales"]["full"]["seeds"] = 0; },
       "small.json: scales.full.seeds: expected a number of at least 1"},
      {[](Json& t) { t["scales"]["full"]["rows"] = {"third"}; },
       "small.json: scales.full.rows: expected one of first, second"},
      {[](Json& t) { t["scales"]["full"]["needs"]["device"] = "abacus"; },
       "small.json: scales.full.needs.device: expected one of"},
      {[](Json& t) { t["columns"][0]["part"] = "layer1"; },
       "small.json: columns[0].part: expected no part"},
      {[](Json& t) { t["rows"][0]["search"] = Json::object(); },
       "small.json: rows[0].search: expected a row of kind accuracy"},
      {[](Json& t) {
         t = training_table(), t["rows"][0]["search"] = search(1, {0.5, 1});
       },
       "small.json: rows[0].search.candidates: expected at least two"},
      {[](Json& t) {
         t = training_table(), t["rows"][0]["search"] = search(2, {0.5, 0.25, 1});
       },
       "small.json: rows[0].search.shares: expected ascending numbers"},
      {[](Json& t) { t = training_table(), t["rows"][0]["search"] = search(2, {0.5}); },
       "small.json: rows[0].search.shares: expected ascending numbers"},
      {[](Json& t) {
         t = training_table(), t["rows"][0]["search"] = search(2, {1});
         t["rows"][0]["search"]["candidates"][1]["name"] = "0";
       },
       "small.json: rows[0].search.candidates: expected different names"},
      {[](Json& t) {
         t["plot"] = {{"x", "activation"}};
       },
       "small.json: plot.y: expected a value"},
  };
  for (const Mistake& mistake : mistakes) {
    Json table = small_table();
    mistake.make(table);
    CHECK_THROWS_WITH_AS(written(folder, table), doctest::Contains(mistake.said), ConfigError);
  }
  write_file(folder / "broken.json", "{");
  CHECK_THROWS_WITH_AS(read_table(folder / "broken.json"), doctest::Contains("broken.json"),
                       ConfigError);
  CHECK_THROWS_AS(read_tables(folder / "none"), ConfigError);
  const TempFolder empty;
  CHECK_THROWS_WITH_AS(read_tables(empty / ""), doctest::Contains("expected tables"), ConfigError);
}

TEST_CASE("all shipped tables and the configurations of all their cells are right") {
  const std::vector<TableFile> tables = read_tables(FRUGAL_CONFIGS "/reproduce");
  CHECK(tables.size() >= 9);
  for (const TableFile& table : tables) {
    CHECK_MESSAGE(table.scales.contains(Scale::smoke), table.name);
    for (const auto& each : table.scales) {
      std::vector<Cell> cells;
      CHECK_NOTHROW_MESSAGE(cells = cells_of(table, each.first), table.name);
      CHECK_FALSE(cells.empty());
    }
    for (const TableRow& row : table.rows)
      for (const Published& published : row.published)
        CHECK_MESSAGE(
            std::find(table.show.begin(), table.show.end(), published.metric) != table.show.end(),
            table.name, ": ", row.name, ": ", published.metric);
  }
}

}  // namespace frugal::apps
