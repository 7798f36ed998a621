// How studies of gradients show their results.
#pragma once
#include <string>
#include <vector>

#include "apps/bench/gradient_bench.h"
#include "apps/json.h"
#include "lab/commands.h"

namespace frugal::lab {

struct GradientRows {
  const char* name;                            // the name of the list in JSON
  std::vector<std::vector<std::string>> rows;  // the first one has the heads
  apps::Json results = apps::Json::array();
  train::GradientErrors last = {};  // the errors of all parameters, which have the unit

  // Adds a row of the cells and the variance and the squared bias over `unit`, and an object with
  // the same.
  void add(std::vector<std::string> cells, apps::Json values, const train::GradientErrors& errors,
           double unit);
};
// Prints the table or, if asked for, JSON.
void print_gradients(const LabArguments& arguments, const apps::Config& config, int64_t draws,
                     const GradientRows& rows);

}  // namespace frugal::lab
