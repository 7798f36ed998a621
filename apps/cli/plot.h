// Curves in a terminal and as SVG.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace frugal::apps {

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x and y, with rising x; finite
};

struct PlotOptions {
  int64_t columns = 80, rows = 16;  // of the terminal, with the labels; rows without the x axis
  bool log_x = false;               // REQUIRES: all x above 0
  std::string x, y;                 // what the axes show
  std::optional<double> most = {};  // values above it are drawn at the upper edge
};

// Plain characters, each line of at most `columns`. Points of one column are averaged, and gaps
// between points are filled with straight lines. Empty: there are no points.
std::string plot(const std::vector<Curve>& curves, const PlotOptions& options);

// The same as a whole SVG document.
std::string svg_plot(const std::vector<Curve>& curves, const PlotOptions& options);

}  // namespace frugal::apps
