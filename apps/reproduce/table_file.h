// A table or figure of a paper as a file: rows, columns, the configuration of each cell, and what
// was published. The files are configs/reproduce/NAME.json; docs/guide/reproduce.md describes them.
#pragma once
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/config/keys/config_error.h"
#include "apps/json.h"

namespace frugal::apps {

// How a cell is measured.
enum class CellKind : uint8_t { memory, accuracy, throughput, variance, largest };
constexpr std::array<CellKind, 5> kCellKinds = {CellKind::memory, CellKind::accuracy,
                                                CellKind::throughput, CellKind::variance,
                                                CellKind::largest};
std::string name_of(CellKind kind);

// How much is run. Smoke: seconds, only to see that everything works.
enum class Scale : uint8_t { smoke, reduced, full };
constexpr std::array<Scale, 3> kScales = {Scale::smoke, Scale::reduced, Scale::full};
std::string name_of(Scale scale);
Scale scale_named(const std::string& name);  // Errors (ConfigError): another name

// Whose method a cell runs: the paper's as it was published, or our default.
enum class Way : uint8_t { as_published, ours };
constexpr std::array<Way, 2> kWays = {Way::as_published, Way::ours};
std::string name_of(Way way);   // "as_published"
std::string title_of(Way way);  // "as published"

// Paths of a configuration and their values, in the order of the file. Null: what the levels of the
// file above set there does not count.
using Sets = std::vector<std::pair<std::string, Json>>;

// What each way adds to a cell's configuration. A missing entry adds nothing; std::nullopt: the way
// has no cell here.
using WaySets = std::map<Way, std::optional<Sets>>;

// A value of a paper.
struct Published {
  std::string column, metric;
  double value = 0;
  std::string unit;   // "GB"
  std::string where;  // the place in the paper: "table 4"
  std::string note;   // what else must be known of it, or empty
};

// A search by successive halving (apps/reproduce/search.h), in the place of one training.
struct TableSearch {
  struct Candidate {
    std::string name;
    Sets sets;  // over those of the cell
  };
  std::vector<Candidate> candidates;  // at least two
  std::vector<double> shares;         // each round's part of train.epochs; ascending, the last is 1
  double tolerance = 0;               // percent points of accuracy (ranked())
};

// A training whose weights the cells of a row start from. It runs once for all of them. A row's
// part goes over the scale's, and that over the table's. A row has one if it or the table says so.
struct TablePretraining {
  std::optional<Json> base;  // as that of a row
  Sets sets;
};

struct TableRow {
  std::string name;
  std::optional<CellKind> kind;  // instead of the table's
  std::optional<Json> base;      // instead of the table's and of the scale's
  std::optional<int64_t> seeds;  // instead of the scale's
  Sets sets;
  Json measure = Json::object();     // over the table's and the scale's
  std::vector<std::string> columns;  // the row's only ones; empty: all
  WaySets ways;
  std::optional<TableSearch> search;            // only a row that trains may have one
  std::optional<TablePretraining> pretraining;  // only a row that trains may have one
  std::vector<Published> published;
  std::string unavailable;  // why nothing can be measured; empty: it can
};

struct TableColumn {
  std::string name;
  std::string part;  // shows this part of each value, such as that of a layer; empty: the whole
  Sets sets;
  WaySets ways;
};

// What a scale needs, for the list of tables, and how it differs.
struct TableScale {
  std::vector<std::string> data;  // names of data sets
  double hours = 0;               // on two cores, about
  std::string device = "cpu";
  int64_t memory = 0;  // bytes that a cell takes at most, about; 0: little
  int64_t seeds = 1;
  std::optional<Json> base;  // instead of the table's
  Sets sets;
  std::optional<TablePretraining> pretraining;
  Json measure = Json::object();
  std::vector<std::string> rows, columns;  // the only ones; empty: all
};

// Axes of a figure: metrics.
struct TablePlot {
  std::string x, y;
};

struct TableFile {
  std::string name;  // the file's, without .json
  std::string path;
  std::string title, paper, place, text;
  CellKind kind = CellKind::memory;
  Json base;  // an object, or the name of a file beside the folder of tables
  Sets sets;
  std::optional<TablePretraining> pretraining;
  std::vector<std::string> show;  // metrics
  Json measure = Json::object();
  WaySets ways;
  std::map<Scale, TableScale> scales;
  std::vector<TableColumn> columns;  // at least one; a table without columns has one without name
  std::vector<TableRow> rows;
  std::optional<TablePlot> plot;

  // The scale's part. A table without `reduced` takes `full` for it; empty: neither is there.
  std::optional<Scale> scale_for(Scale wanted) const;
};

// Errors (ConfigError): a file that cannot be read or is not JSON; an unknown or missing key; a
// value of the wrong kind; a name that is given twice or not at all; a table without cells. The
// message names the file and the place in it.
TableFile read_table(const std::string& path);

// All tables of a folder, by name. Errors (ConfigError): no such folder, no table in it, those of
// read_table().
std::vector<TableFile> read_tables(const std::string& folder);

// configs/reproduce in the current folder if it is there, or that of the installation.
// Errors (ConfigError): neither is there.
std::string tables_folder();

}  // namespace frugal::apps
