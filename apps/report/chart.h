// Charts as inline SVG in HTML. Colours come from classes of the page's style sheet, so that they
// follow the reader's theme. The page's script shows values under the pointer; without it the
// charts can be read by their axes. Lines can also be an SVG file.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace frugal::apps {

enum class Unit : uint8_t { number, percent, bytes, decimal };  // decimal: bytes as "12.3 MB"

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // rising x
  int colour = 0;                                 // modulo kColours
  bool dashed = false;
  // What a pointer sees of each point, which gets a dot. Empty: a line alone. REQUIRES with notes:
  // at most kMostPoints points, all finite.
  std::vector<std::string> notes = {};
};
inline constexpr int kColours = 8;

struct ChartOptions {
  std::string title = {}, note = {};  // plain text
  std::string x = "step", y = {};
  Unit unit = Unit::number;
  Unit x_unit = Unit::number;  // without notes, ticks of x are whole numbers
  bool log_y = false;          // values that are not above 0 are left out
  bool named = false;          // a line is named, even if it is the only one
};

// Points that are not finite are left out, and more than kMostPoints points are averaged in
// neighbours. Empty: there are none.
inline constexpr size_t kMostPoints = 400;
std::string line_chart(std::vector<Line> lines, const ChartOptions& options);
// The lines as a whole SVG document of fixed colours, with all points.
std::string line_svg(std::vector<Line> lines, const ChartOptions& options);

// Areas above each other, over moments of equal distance.
struct Area {
  std::string name, style;     // style: a class of the style sheet
  std::vector<double> values;  // as many as moments
};
struct Stretch {  // a row of moments that has a name above it
  std::string name;
  size_t begin, end;
};
struct StackOptions {
  std::string title, note, x, y;
  Unit unit = Unit::bytes;
  std::vector<Stretch> stretches;
  size_t marked = 0;  // a moment
  std::string mark;
};
std::string stacked_chart(const std::vector<Area>& areas, const StackOptions& options);

// Cells of a few kinds: a row for each name, a column for each label.
struct Cells {
  std::vector<std::string> names, labels;
  std::vector<std::vector<int>> kinds;                      // [row][column]; -1: nothing
  std::vector<std::pair<std::string, std::string>> legend;  // the text and the class of each kind
};
std::string cell_chart(const Cells& cells, const std::string& title, const std::string& note,
                       const std::string& x);

}  // namespace frugal::apps
