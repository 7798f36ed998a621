// A table with its results, as all writers show it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "apps/reproduce/cells.h"
#include "apps/reproduce/store.h"

namespace frugal::apps {

inline constexpr const char* kNotRun = "not run";  // the text of a cell without a result

// The results of a cell over all seeds, at the largest scale that has results.
struct ViewCell {
  bool exists = false;  // else the table has no such cell
  int64_t seeds = 0;    // with a result; 0: it was not run
  Scale scale = Scale::full;
  struct Value {
    double mean = 0, spread = 0;  // spread: the standard deviation
  };
  std::map<std::string, Value> values;  // by metric
  std::string command;                  // the first seed's
  std::string version, date, processor, note;
  std::string choice;  // the candidates that a search chose, for all seeds
  double seconds = 0;  // the sum over all seeds
};

struct ViewLine {
  std::string row, column, unavailable;
  std::map<std::string, Published> published;  // by metric
  std::map<Way, ViewCell> cells;
  bool was_run() const;      // has a result
  bool is_stand_in() const;  // was run at the scale smoke alone, whose setting is not the row's
};

struct View {
  TableFile table;
  std::vector<ViewLine> lines;
  bool has_columns = false;  // else lines have no column's name
};

// `out`: the folder that commands name. Results of scales below `least` do not count.
View view_of(const TableFile& table, const ResultStore& store, const std::string& out,
             Scale least = Scale::smoke);

// The name of the row, and of the setting; a stand-in says that it is one.
std::string row_text(const ViewLine& line);
// Rows that were not run, and are not unavailable, in a sentence; empty: there are none.
std::string unrun_text(const View& view);
// What a reader sees of it: "5.28 GB"; empty: nothing was published, or it is not of this setting.
std::string published_text(const ViewLine& line, const std::string& metric);
// "84.26 % +- 0.18 (3)", with the scale if it is not the full one; kNotRun; "-": no such cell.
std::string cell_text(const ViewLine& line, Way way, const std::string& metric);
// Sentences below the table: where values were published, what is unavailable and why, machines.
std::vector<std::string> notes_of(const View& view);

}  // namespace frugal::apps
