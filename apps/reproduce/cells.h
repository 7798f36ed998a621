// The cells of a table at a scale: each a configuration, how it is measured, and a key by which its
// results are kept. A cell is a command of this program in a process of its own. The key is a hash
// of what differs from the defaults, so a new key of configurations leaves results valid. A cell
// may be a search over other cells (apps/reproduce/search.h): the results that are there say what
// it needs next.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/reproduce/table_file.h"

namespace frugal::apps {

struct CellSearch;

// Where cells that train run, if it is not where the table says. It is no part of a cell's key: a
// result names its machine.
struct CellPlace {
  std::string device, precision;  // empty: as the table says
  bool empty() const { return device.empty() && precision.empty(); }
};

struct Cell {
  std::string table, row, column;
  std::string file;  // the table's
  std::string part;  // which part of its values is shown; empty: the whole
  Way way = Way::ours;
  Scale scale = Scale::full;
  CellKind kind = CellKind::memory;
  std::string base;               // the file of the base; empty: it is inline
  Json document;                  // the base
  std::vector<std::string> sets;  // over it: "path=value"
  Json measure = Json::object();
  int64_t seeds = 1;
  int64_t memory = 0;                        // bytes that it takes at most, about; 0: little
  std::shared_ptr<const CellSearch> search;  // in the place of one training
  std::shared_ptr<const Cell> pretraining;   // the cell starts from its weights; it has one seed
  Config config;                             // not resolved, so without what only the data can tell
  std::string hash;  // hashes all that decides the result, except the seed and the scale

  // "ResNet-50, 4 bits, ours".
  std::string title() const;
};

struct CellSearch {
  std::vector<std::string> names;         // the candidates' names
  std::vector<std::vector<Cell>> rounds;  // each round trains every candidate
  double tolerance = 0;
};

// The file of its base: `base`, or one below `out` that save_base() writes.
std::string base_of(const Cell& cell, const std::string& out);
void save_base(const Cell& cell, const std::string& out);
// The folder of its training run below `out`.
std::string run_of(const Cell& cell, const std::string& out, int64_t seed);
// The command that measures it, without the program's name. A search has the command that runs the
// table.
std::vector<std::string> command_of(const Cell& cell, const std::string& out, int64_t seed);

// The cells: rows in order, in each the columns, in each the ways. `scale`: one that the table has.
// `seeds`: instead of the table's, unless 0.  `place`: of cells that train; on CUDA their steps are
// captured.
// Errors (ConfigError): a cell whose configuration is wrong; the message names the cell.
std::vector<Cell> cells_of(const TableFile& table, Scale scale, int64_t seeds = 0,
                           const CellPlace& place = {});

}  // namespace frugal::apps
