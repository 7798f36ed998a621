// Curves in a terminal; apps/report/chart.h draws them as SVG.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "apps/report/chart.h"

namespace frugal::apps {

struct PlotOptions {
  // `columns` counts the labels at the left. `rows` counts those of the curves alone: the x axis,
  // the names and a legend take further rows.
  int64_t columns = 80, rows = 16;
  bool log_x = false;               // REQUIRES: all x above 0
  std::string x, y;                 // what the axes show
  std::optional<double> most = {};  // values above it are drawn at the upper edge
};

// Plain characters, each line of at most `columns`. Points of one column are averaged, and gaps
// between points are filled with straight lines. Empty: there are no points. REQUIRES: all points
// are finite.
std::string plot(const std::vector<Line>& curves, const PlotOptions& options);

}  // namespace frugal::apps
