// How cells of each kind are measured: the command that does it, and what its output says.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/json.h"
#include "apps/reproduce/table_file.h"

namespace frugal::apps {

// A number that a kind of cells gives.
struct Metric {
  enum class Unit : uint8_t { bytes, percent, ratio, times, bits, count, loss };
  std::string name;   // "activation"
  std::string title;  // "activations"
  Unit unit = Unit::bytes;
  bool over_seeds = false;  // mean and spread over seeds count, else the first seed's value
};
std::vector<std::string> metric_names(CellKind kind);
const Metric& metric_named(const std::string& name);  // REQUIRES: one of a kind
// The units that a published value of a metric may have; the first one is none.
std::vector<std::string> units_of(const Metric& metric);
std::string in_unit(const Metric& metric, double value);  // "5.28 GB", "84.2 %"
// How many of what results are counted in, bytes or percent, a published unit is: 1e9 for "GB".
double size_of_unit(const std::string& unit);

// The parameters beside the configuration, such as the draws of a variance.
std::vector<std::string> measures_of(CellKind kind);
// What was expected instead of the value of a parameter; empty: the value is right.
std::string wrong_measure(const std::string& name, const Json& value);
bool has_seeds(CellKind kind);
// Do values have parts beside the whole, as "variance:layer1"?
bool has_parts(CellKind kind);
// Must nothing else run beside it?
bool runs_alone(CellKind kind);

struct Cell;
// The arguments of `frugal` that measure a cell and print JSON. `run`: the folder of a training
// run.
std::vector<std::string> arguments_of(const Cell& cell, const std::string& base, int64_t seed,
                                      const std::string& run);
// What is kept of that JSON: each metric by its name, and what else is worth keeping. `run`: the
// folder of a training run. Errors: the document lacks a value; memory did not suffice.
Json values_of(CellKind kind, const Json& printed, const std::string& run);

}  // namespace frugal::apps
