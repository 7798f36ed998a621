// Small tables for tests.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "apps/reproduce/store.h"
#include "apps/reproduce/table_file.h"
#include "tests/apps/run.h"

namespace frugal::apps {

// Results are kept by SQLite, which a build may lack.
inline const auto skip = doctest::skip(!ResultStore::available());

// `reproduce` of the table in `folder`, into `folder`/out.
inline std::string command(const TempFolder& folder, const std::string& more = "") {
  return fmt::format("reproduce {} --scale smoke --tables {} --out {} {}", folder / "small.json",
                     folder / "", folder / "out", more);
}

// Two rows and two columns of a network of microseconds, on the device meta.
inline Json small_table() {
  return Json::parse(R"({
    "title": "Small", "paper": "Nobody", "place": "table 1", "text": "What it shows.",
    "kind": "memory", "show": ["activation", "peak"],
    "base": {"model": {"name": "mlp"}, "device": "meta",
             "data": {"name": "random", "shape": [16, 16, 1], "batch_size": 256}},
    "as_published": {"compression.recipes": false},
    "scales": {"smoke": {"needs": {"device": "meta"}, "rows": ["first"]},
               "full": {"needs": {"device": "meta", "hours": 1}, "sets": {"data.batch_size": 512}}},
    "columns": [{"name": "4 bits", "sets": {"compression.bits": 4}},
                {"name": "2 bits", "sets": {"compression.bits": 2}, "ours": null}],
    "rows": [{"name": "first", "published": [
                {"column": "4 bits", "metric": "activation", "value": 1.5, "unit": "GB",
                 "where": "table 2", "note": "as it was said"}]},
             {"name": "second", "sets": {"data.batch_size": 1024}}]})");
}

// Runs of a fraction of a second.
inline Json training_table() {
  Json table = small_table();
  table["kind"] = "accuracy";
  table["show"] = {"accuracy", "activation"};
  table["base"] = Json::parse(kTinyConfig);
  table["base"].erase("threads");
  table["base"]["compression"] = {{"advanced", {{"min_elements", 96}}}};
  table["rows"] = Json::parse(R"([{"name": "first"}])");
  table["scales"] = Json::parse(R"({"smoke": {"needs": {}, "seeds": 2}})");
  return table;
}

inline TableFile written(const TempFolder& folder, const Json& table,
                         const std::string& name = "small") {
  write_file(folder / (name + ".json"), table.dump(2));
  return read_table(folder / (name + ".json"));
}

}  // namespace frugal::apps
