#include "apps/cli/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

constexpr char kMarks[] = "*o+x#@%&";
constexpr size_t kKinds = 8;  // the number of marks

// What the axes span. Equal ends are moved apart.
struct Range {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  void widen() {
    if (least < most) return;
    const double by = least == 0 ? 1 : std::abs(least) / 10;
    least -= by;
    most += by;
  }
  double share(double value) const { return (value - least) / (most - least); }
  double at(double share) const { return least + share * (most - least); }
};

struct Axes {
  Range x, y;
};

double place(double x, const PlotOptions& options) { return options.log_x ? std::log10(x) : x; }
double limited(double y, const PlotOptions& options) {
  return options.most ? std::min(y, *options.most) : y;
}

Axes axes_of(const std::vector<Line>& curves, const PlotOptions& options) {
  Axes axes;
  for (const Line& curve : curves)
    for (const auto& [x, y] : curve.points) {
      axes.x.add(place(x, options));
      axes.y.add(limited(y, options));
    }
  axes.x.widen();
  axes.y.widen();
  return axes;
}

bool has_points(const std::vector<Line>& curves) {
  return std::any_of(curves.begin(), curves.end(),
                     [](const Line& curve) { return !curve.points.empty(); });
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

// The mean height of a curve in each column; NaN: beside the curve.
std::vector<double> heights(const Line& curve, const Axes& axes, const PlotOptions& options,
                            size_t columns) {
  std::vector<double> sums(columns, 0), counts(columns, 0);
  for (const auto& [x, y] : curve.points) {
    const double share = axes.x.share(place(x, options));
    const auto column = std::min(
        columns - 1, static_cast<size_t>(std::lround(share * static_cast<double>(columns - 1))));
    sums[column] += limited(y, options);
    ++counts[column];
  }
  std::vector<double> all(columns, std::numeric_limits<double>::quiet_NaN());
  size_t before = columns;
  for (size_t i = 0; i < columns; ++i) {
    if (counts[i] == 0) continue;
    all[i] = sums[i] / counts[i];
    for (size_t k = before + 1; before < columns && k < i; ++k)
      all[k] = all[before] + (all[i] - all[before]) * static_cast<double>(k - before) /
                                 static_cast<double>(i - before);
    before = i;
  }
  return all;
}

// "least ... middle ... most" below `columns` columns.
std::string x_labels(const Axes& axes, const PlotOptions& options, size_t columns) {
  std::string line(columns, ' ');
  const auto value = [&](double share) {
    const double at = axes.x.at(share);
    return number(options.log_x ? std::pow(10, at) : at);
  };
  const std::string first = value(0), middle = value(0.5), last = value(1);
  line.replace(0, first.size(), first);
  line.replace(columns - last.size(), last.size(), last);
  line.replace(columns / 2 - middle.size() / 2, middle.size(), middle);
  return line;
}

std::string trimmed(std::string line, size_t columns) {
  line = line.substr(0, columns);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

}  // namespace

std::string plot(const std::vector<Line>& curves, const PlotOptions& options) {
  if (!has_points(curves)) return "";
  constexpr size_t kLabels = 11;  // columns left of the curves
  const auto all = static_cast<size_t>(std::max<int64_t>(options.columns, 40));
  const auto rows = static_cast<size_t>(std::max<int64_t>(options.rows, 4));
  const size_t columns = all - kLabels;
  const Axes axes = axes_of(curves, options);
  std::vector<std::string> grid(rows, std::string(columns, ' '));
  for (size_t i = curves.size(); i-- > 0;) {  // the first curve lies above the others
    const std::vector<double> line = heights(curves[i], axes, options, columns);
    for (size_t column = 0; column < columns; ++column) {
      if (std::isnan(line[column])) continue;
      const double down = (1 - axes.y.share(line[column])) * static_cast<double>(rows - 1);
      grid[std::min(rows - 1, static_cast<size_t>(std::lround(down)))][column] = kMarks[i % kKinds];
    }
  }
  std::string text = trimmed(fmt::format("{:>{}} {}", "", kLabels - 2, options.y), all);
  for (size_t row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row == rows - 1 || row == (rows - 1) / 2;
    const double at = axes.y.at(1 - static_cast<double>(row) / static_cast<double>(rows - 1));
    text +=
        trimmed(fmt::format("{:>{}} |{}", labelled ? number(at) : "", kLabels - 2, grid[row]), all);
  }
  text += std::string(kLabels - 1, ' ') + "+" + std::string(columns, '-') + "\n";
  text += trimmed(std::string(kLabels, ' ') + x_labels(axes, options, columns), all);
  text += trimmed(std::string(kLabels, ' ') + options.x, all);
  for (size_t i = 0; i < curves.size() && curves.size() > 1; ++i)
    text += trimmed(fmt::format("  {} {}", kMarks[i % kKinds], printable(curves[i].name)), all);
  return text;
}

}  // namespace frugal::apps
