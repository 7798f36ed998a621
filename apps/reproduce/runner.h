// Measures cells that have no result yet: child processes of this program, some beside each other.
// A finished cell is in the store at once. A training that was interrupted goes on where it was,
// because its folder below `out` has its name from the cell's configuration.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "apps/reproduce/cells.h"
#include "apps/reproduce/store.h"

namespace frugal::apps {

struct RunnerOptions {
  std::string out;   // folder of runs, logs and bases
  int64_t jobs = 0;  // processes at once; 0: one for each core
  std::function<void(const std::string& line)> say = [](const std::string&) {};
};

struct RunnerReport {
  int64_t had = 0, done = 0;                // results that were there; new ones
  std::vector<std::string> failed;          // "TABLE: CELL: why"
  std::map<std::string, int64_t> left_out;  // how many results need what this machine lacks
};

// Errors: Interrupted, after the children have written their checkpoints; another program that runs
// cells in the same folder; a folder that cannot be written. A cell that fails stops no other one.
RunnerReport run_cells(const std::vector<Cell>& cells, ResultStore& store,
                       const RunnerOptions& options);

ResultKey key_of(const Cell& cell, int64_t seed);

// What a cell needs and this machine lacks, as "the data cifar100"; empty: nothing.
std::string missing_need(const Cell& cell);

}  // namespace frugal::apps
