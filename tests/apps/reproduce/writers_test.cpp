// What the formats make of a small store.
#include <doctest/doctest.h>

#include "apps/reproduce/runner.h"
#include "apps/reproduce/writers.h"
#include "tests/apps/reproduce/tables.h"

namespace frugal::apps {
namespace {

void put(ResultStore& store, const Cell& cell, int64_t seed, const Json& values) {
  StoredResult result;
  result.values = values;
  result.version = "0.1.0";
  result.machine = {{"processor", "an abacus"}};
  result.date = "2026-11-23 10:00:00";
  store.put(key_of(cell, seed), result);
}

}  // namespace

TEST_CASE("writers show what was published, what was measured, and what was not run" * skip) {
  const TempFolder folder;
  Json json = small_table();
  json["rows"][1]["name"] = "second & <last> 100%";
  json["rows"].push_back(json["rows"][0]);
  json["rows"][2]["name"] = "third";
  json["rows"][2]["unavailable"] = "it is lost";
  const TableFile table = written(folder, json);
  ResultStore store(folder / "results.sqlite");
  const std::vector<Cell> full = cells_of(table, Scale::full),
                          smoke = cells_of(table, Scale::smoke);
  put(store, full[0], 0, {{"activation", 2000000000}, {"peak", 3000000000}});
  put(store, smoke[0], 0, {{"activation", 1}, {"peak", 1}});  // the full one counts
  put(store, smoke[1], 0,
      {{"activation", 5000}, {"peak", 6e6}, {"note", "widths of a profile"}});  // 4 bits, ours
  const View view = view_of(table, store, "out");

  const std::string markdown = markdown_of(view);
  CHECK(has(markdown, "# Small\n"));
  CHECK(has(markdown,
            "| first | 4 bits | 1.5 GB | 2.00 GB | 5.0 kB [smoke] |  | 3.00 GB | 6.0 MB "
            "[smoke] |\n"));
  // Rows that were not run are folded into a note.
  CHECK(lacks(markdown, "|  | 2 bits |"));
  CHECK(has(markdown, "- Rows that were not run: first, 2 bits; second & <last> 100%, 4 bits"));
  CHECK(has(markdown, "| third | 4 bits | 1.5 GB | - | - |"));
  CHECK(has(markdown, "- third: it is lost."));
  CHECK(has(markdown, "- first: as it was said."));
  CHECK(has(markdown, "Published activations: table 2."));
  CHECK(has(markdown, "`frugal bench step out/bases/"));
  CHECK(has(markdown, "- Counted without values, with widths of a profile: 4 bits, ours."));
  CHECK(has(markdown, "an abacus"));

  const std::string csv = csv_of(view);
  CHECK(has(csv, "small,first,4 bits,activation,published,1.5,,GB,,full,table 2,\n"));
  CHECK(has(csv, "small,first,4 bits,activation,as_published,2000000000,,B,1,full,,"));
  CHECK(has(csv, "small,first,4 bits,activation,ours,5000,,B,1,smoke,,"));

  const std::string html = html_of(view);
  CHECK(has(html, "Rows that were not run: first, 2 bits; second &amp; &lt;last&gt; 100%"));
  CHECK(has(html, "prefers-color-scheme:dark"));
  CHECK(lacks(html, "<script"));
  CHECK(lacks(html, "src="));
  CHECK(has(html_index({view}), "<a href=\"small.html\">Small</a>"));

  // The page has no results of smoke.
  const std::string page = results_page({view_of(table, store, "out", Scale::reduced)});
  CHECK(has(page, "- [Small](#small)\n"));
  CHECK(has(page, "\n## small\n"));
  CHECK(has(page, "frugal reproduce small --scale full\n"));
  CHECK(has(page, "| first | 4 bits | 1.5 GB | 2.00 GB | not run |"));
  CHECK(has(page, "|  | 2 bits |  | not run | - |"));
}

TEST_CASE("a page keeps the section of a table that has no results here" * skip) {
  const TempFolder here, elsewhere;
  Json other = small_table();
  other["base"]["data"]["shape"] = {8, 8, 1};
  const TableFile first = written(elsewhere, small_table()),
                  second = written(elsewhere, other, "other");
  ResultStore there(elsewhere / "results.sqlite"), store(here / "results.sqlite");
  put(there, cells_of(first, Scale::full)[0], 0, {{"activation", 2e9}, {"peak", 3e9}});
  put(there, cells_of(second, Scale::full)[0], 0, {{"activation", 4e9}, {"peak", 5e9}});
  const auto page = [&](const ResultStore& of, const std::string& before) {
    return results_page({view_of(first, of, "out"), view_of(second, of, "out")}, before);
  };
  const std::string before = page(there, "");
  CHECK(page(store, before) == before);  // nothing was run here
  put(store, cells_of(first, Scale::full)[0], 0, {{"activation", 6e9}, {"peak", 7e9}});
  const std::string after = page(store, before);
  CHECK(has(after, "6.00 GB"));
  CHECK(lacks(after, "2.00 GB"));
  CHECK(has(after, "4.00 GB"));
  CHECK(lacks(page(store, ""), "4.00 GB"));
}

TEST_CASE("a page keeps the values of cells that have no result here" * skip) {
  const TempFolder folder;
  const TableFile table = written(folder, small_table());
  ResultStore there(folder / "there.sqlite"), here(folder / "here.sqlite");
  const std::vector<Cell> cells = cells_of(table, Scale::full);
  const auto of = [&](Way way, const std::string& row, const std::string& column) {
    return *std::find_if(cells.begin(), cells.end(), [&](const Cell& cell) {
      return cell.way == way && cell.row == row && cell.column == column;
    });
  };
  const Cell shown = of(Way::as_published, "first", "4 bits"),
             other = of(Way::as_published, "first", "2 bits");
  put(there, shown, 0, {{"activation", 2e9}, {"peak", 3e9}});
  put(there, other, 0, {{"activation", 4e9}, {"peak", 5e9}, {"note", "a ruler"}});
  const std::string before = results_page({view_of(table, there, "out")});
  put(here, shown, 0, {{"activation", 6e9}, {"peak", 7e9}});
  const std::string after = results_page({view_of(table, here, "out")}, before);
  CHECK(has(after, "| first | 4 bits | 1.5 GB | 6.00 GB | not run |"));
  CHECK(has(after, "|  | 2 bits |  | 4.00 GB | - |"));
  CHECK(has(after, "- Counted without values, with a ruler"));
  CHECK(results_page({view_of(table, here, "out")}, after) == after);
  CHECK(lacks(results_page({view_of(table, here, "out")}), "a ruler"));
}

TEST_CASE("results of smoke do not stand beside published values of another setting" * skip) {
  const TempFolder folder;
  const TableFile table = written(folder, small_table());
  ResultStore store(folder / "results.sqlite");
  put(store, cells_of(table, Scale::smoke)[0], 0, {{"activation", 7000}, {"peak", 9000}});
  const std::string markdown = markdown_of(view_of(table, store, "out"));
  CHECK(has(markdown, "| first (smoke: a tiny stand-in) | 4 bits |  | 7.0 kB [smoke] |"));
  CHECK(lacks(markdown, "| 1.5 GB |"));
  CHECK(has(markdown, "- A stand-in has a tiny network"));
}

TEST_CASE("results over seeds have a mean and a spread, and a figure has points" * skip) {
  const TempFolder folder;
  Json json = training_table();
  json["plot"] = {{"x", "activation"}, {"y", "accuracy"}};
  ResultStore store(folder / "results.sqlite");
  CHECK(figure_of(view_of(written(folder, json), store, "out")).empty());
  json["rows"][0]["published"] = Json::parse(R"([
      {"column": "4 bits", "metric": "activation", "value": 3.5, "unit": "MB", "where": "table 2"},
      {"column": "4 bits", "metric": "accuracy", "value": 81, "unit": "%", "where": "table 2"}])");
  const TableFile table = written(folder, json);
  const std::vector<Cell> cells = cells_of(table, Scale::smoke);
  put(store, cells[0], 1, {{"accuracy", 80}, {"activation", 4e6}});
  put(store, cells[0], 2, {{"accuracy", 84}, {"activation", 4e6}});
  const View view = view_of(table, store, "out");
  CHECK(has(markdown_of(view), "82.00 % ± 2.83 (2) [smoke]"));
  CHECK(has(csv_of(view), ",82,2.82843,%,2,smoke,"));
  const std::string figure = figure_of(view);
  CHECK(has(figure, "<title>first, as published, 4 bits: 4.0 MB, 82.00 %</title>"));
  CHECK(has(figure, "<title>first, published, 4 bits: 3.5 MB, 81.00 %</title>"));
  CHECK(has(html_of(view), "<svg "));
}

}  // namespace frugal::apps
