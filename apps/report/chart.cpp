#include "apps/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "apps/report/html.h"
#include "core/error.h"
#include "train/planning/bytes.h"

namespace frugal::apps {
namespace {

constexpr double kLeft = 84, kTop = 34, kWidth = 540, kHeight = 220, kAll = 640, kBelow = 52;

struct Axis {
  double least = std::numeric_limits<double>::infinity(), most = -least;
  std::vector<double> ticks;
  bool log = false;

  void add(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  double share(double value) const {
    if (log)
      return (std::log10(value) - std::log10(least)) / (std::log10(most) - std::log10(least));
    return (value - least) / (most - least);
  }
};

// Steps of 1, 2 or 5 times a power of `base` units.
double nice_step(double span, int ticks, double unit) {
  const double rough = span / unit / ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power * unit;
  return 10 * power * unit;
}

double unit_of(double most, Unit unit) {
  if (unit == Unit::percent) return 0.01;
  if (unit != Unit::bytes) return 1;
  double size = 1;
  while (most >= 1024 * size && size < 0x1p60) size *= 1024;
  return size;
}

void place_linear(Axis& axis, int ticks, Unit unit, bool from_zero, bool widen) {
  if (from_zero) axis.least = std::min(axis.least, 0.0);
  if (axis.least == axis.most) {
    const double by = axis.least == 0 ? 1 : std::abs(axis.least) / 10;
    axis.least -= from_zero ? 0 : by;
    axis.most += by;
  }
  const double step = nice_step(axis.most - axis.least, ticks, unit_of(std::abs(axis.most), unit));
  if (widen) {
    axis.least = std::floor(axis.least / step + 1e-9) * step;
    axis.most = std::ceil(axis.most / step - 1e-9) * step;
  }
  // The doubles around a huge value may be further apart than a step, so there is a limit.
  const double first = std::ceil(axis.least / step - 1e-9);
  for (int i = 0; i <= 4 * ticks && (first + i) * step <= axis.most + 1e-9 * step; ++i)
    axis.ticks.push_back((first + i) * step + 0.0);  // 0 in the place of -0
}

void place_log(Axis& axis) {
  axis.log = true;
  // A double holds the powers of ten from -307 to 308.
  const double least = std::clamp(std::floor(std::log10(axis.least)), -307.0, 307.0);
  const double most = std::clamp(std::ceil(std::log10(axis.most)), least + 1, 308.0);
  axis.least = std::pow(10, least);
  axis.most = std::pow(10, most);
  const double step = std::max(1.0, std::ceil((std::log10(axis.most) - least) / 6));
  for (double at = least; at <= std::log10(axis.most) + 1e-9; at += step)
    axis.ticks.push_back(std::pow(10, at));
}

std::string tick_text(double value, Unit unit) {
  if (unit == Unit::percent) return fmt::format("{:.4g} %", 100 * value);
  if (unit == Unit::decimal) return train::decimal_bytes(value);
  return unit == Unit::bytes ? train::round_bytes(value) : short_number(value);
}

double down(double share) { return kTop + (1 - share) * kHeight; }
double right(double share) { return kLeft + share * kWidth; }

std::string begin_figure(const std::string& title, const std::string& kind) {
  return fmt::format("<figure class=\"chart {}\"><figcaption>{}</figcaption>", kind,
                     escaped(title));
}

std::string begin_svg(const std::string& title, double height) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", kAll,
                     height, escaped(title));
}

std::string frame(const Axis& y, Unit unit, const std::string& title) {
  std::string text;
  for (const double tick : y.ticks)
    text += fmt::format(
        "<path class=\"tick\" d=\"M{:.0f} {:.1f}h{:.0f}\"/><text x=\"{:.0f}\" y=\"{:.1f}\" "
        "class=\"end\">{}</text>",
        kLeft, down(y.share(tick)), kWidth, kLeft - 8, down(y.share(tick)) + 4,
        tick_text(tick, unit));
  return text + fmt::format("<text x=\"6\" y=\"15\" class=\"axis\">{}</text>", escaped(title));
}

std::string x_axis(const Axis& x, Unit unit, const std::string& title) {
  std::string text = fmt::format("<path class=\"base\" d=\"M{:.0f} {:.0f}h{:.0f}\"/>", kLeft,
                                 kTop + kHeight, kWidth);
  for (const double tick : x.ticks)
    text += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" class=\"mid\">{}</text>",
                        right(x.share(tick)), kTop + kHeight + 20, tick_text(tick, unit));
  return text + fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"mid axis\">{}</text>",
                            kLeft + kWidth / 2, kTop + kHeight + 44, escaped(title));
}

std::string note_text(const std::string& note) {
  return note.empty() ? "" : fmt::format("<p class=\"note\">{}</p>", escaped(note, 1000));
}

std::string legend_entry(const std::string& name, const std::string& style, bool dashed) {
  return fmt::format("<li><i class=\"key {}{}\"></i>{}</li>", style, dashed ? " dashed" : "",
                     escaped(name));
}

// Means of neighbours, so that at most `most` points are left.
void thin(std::vector<std::pair<double, double>>& points, size_t most) {
  if (points.size() <= most) return;
  std::vector<std::pair<double, double>> fewer;
  for (size_t i = 0; i < most; ++i) {
    const size_t begin = i * points.size() / most;
    const size_t end = (i + 1) * points.size() / most;
    double x = 0, y = 0;
    for (size_t k = begin; k < end; ++k) {
      x += points[k].first;
      y += points[k].second;
    }
    const auto count = static_cast<double>(end - begin);
    fewer.emplace_back(std::round(x / count), y / count);
  }
  points = std::move(fewer);
}

// Lines that have points, and the axes around them.
struct Plotted {
  std::vector<Line> lines;
  Axis x, y;
  bool noted = false;     // points have notes
  bool averaged = false;  // there were more points than `most`
};

Plotted plotted(std::vector<Line> lines, const ChartOptions& options, size_t most) {
  Plotted plot;
  for (Line& line : lines) {
    std::erase_if(line.points, [&](const auto& point) {
      return !std::isfinite(point.second) || (options.log_y && point.second <= 0);
    });
    plot.noted = plot.noted || !line.notes.empty();
    plot.averaged = plot.averaged || line.points.size() > most;
    thin(line.points, most);
    for (const auto& [at, value] : line.points) {
      plot.x.add(at);
      plot.y.add(value);
    }
  }
  std::erase_if(lines, [](const Line& line) { return line.points.empty(); });
  plot.lines = std::move(lines);
  if (plot.lines.empty()) return plot;
  place_linear(plot.x, 5, options.x_unit, false, plot.noted);
  if (!plot.noted)
    std::erase_if(plot.x.ticks, [](double tick) { return tick != std::floor(tick); });
  if (options.log_y)
    place_log(plot.y);
  else
    place_linear(plot.y, 4, options.unit, options.unit == Unit::bytes, true);
  return plot;
}

std::string colour_of(const Line& line) { return fmt::format("c{}", line.colour % kColours); }

// The frame, the axes, the lines and their dots.
std::string drawing(const Plotted& plot, const ChartOptions& options) {
  std::string text =
      frame(plot.y, options.unit, options.y) + x_axis(plot.x, options.x_unit, options.x);
  for (const Line& line : plot.lines) {
    const std::string style = colour_of(line);
    std::string path;
    for (const auto& [at, value] : line.points)
      path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", right(plot.x.share(at)),
                          down(plot.y.share(value)));
    const bool alone = line.points.size() == 1;
    if (!alone)
      text += fmt::format("<path class=\"line {}{}\" d=\"{}\"/>", style,
                          line.dashed ? " dashed" : "", path);
    for (size_t i = 0; i < line.points.size() && (alone || !line.notes.empty()); ++i)
      text += fmt::format(
          "<circle class=\"dot {}\" r=\"4\" cx=\"{:.1f}\" cy=\"{:.1f}\"{}", style,
          right(plot.x.share(line.points[i].first)), down(plot.y.share(line.points[i].second)),
          line.notes.empty() ? "/>" : "><title>" + escaped(line.notes[i]) + "</title></circle>");
  }
  return text;
}

// The style of an SVG file repeats what page.css says of charts of lines on a light page.
constexpr const char* kFileStyle =
    "text { fill: #5b6675; } .end { text-anchor: end; } .mid { text-anchor: middle; }\n"
    ".c0 { stroke: #0072b2; fill: #0072b2; } .c1 { stroke: #d55e00; fill: #d55e00; }\n"
    ".c2 { stroke: #009e73; fill: #009e73; } .c3 { stroke: #aa4499; fill: #aa4499; }\n"
    ".c4 { stroke: #b8860b; fill: #b8860b; } .c5 { stroke: #56b4e9; fill: #56b4e9; }\n"
    ".c6 { stroke: #882255; fill: #882255; } .c7 { stroke: #6b7280; fill: #6b7280; }\n"
    ".tick { stroke: #eceff3; } .base { stroke: #dfe3e9; }\n"
    ".line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 6 5; }\n";

// Where four digits make the largest numbers infinite, all digits stay.
double four_digits(double value) {
  const double rounded = std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
  return std::isfinite(rounded) ? rounded : value;
}

const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::bytes:
      return "bytes";
    case Unit::percent:
      return "percent";
    case Unit::number:
    case Unit::decimal:  // the pages that have it have no script
      break;
  }
  return "number";
}

std::string data_of(const Json& json) {
  return "<script type=\"application/json\">" + script_json(json) + "</script></figure>\n";
}

}  // namespace

std::string line_chart(std::vector<Line> lines, const ChartOptions& options) {
  const Plotted plot = plotted(std::move(lines), options, kMostPoints);
  if (plot.lines.empty()) return "";
  std::string text = begin_figure(options.title, "lines");
  if (plot.lines.size() > 1 || options.named) {
    text += "<ul class=\"legend\">";
    for (const Line& line : plot.lines)
      text += legend_entry(line.name, colour_of(line), line.dashed);
    text += "</ul>";
  }
  text += begin_svg(options.title, kTop + kHeight + kBelow) + drawing(plot, options) + "</svg>";
  text += note_text(plot.averaged ? options.note + (options.note.empty() ? "" : " ") +
                                        "Points are means of neighbouring values."
                                  : options.note);
  if (plot.noted) return text + "</figure>\n";
  Json series = Json::array();
  for (const Line& line : plot.lines) {
    Json at = Json::array(), values = Json::array();
    for (const auto& [step, value] : line.points) {
      at.push_back(step);
      values.push_back(four_digits(value));
    }
    series.push_back({{"name", line.name}, {"style", colour_of(line)}, {"x", at}, {"y", values}});
  }
  return text + data_of({{"unit", name_of(options.unit)},
                         {"x", options.x},
                         {"from", plot.x.least},
                         {"to", plot.x.most},
                         {"low", plot.y.least},
                         {"high", plot.y.most},
                         {"log", plot.y.log},
                         {"series", series}});
}

std::string line_svg(std::vector<Line> lines, const ChartOptions& options) {
  const Plotted plot = plotted(std::move(lines), options, std::numeric_limits<size_t>::max());
  if (plot.lines.empty()) return "";
  constexpr double kEntry = 20;  // the height of an entry of the legend
  double below = kTop + kHeight + kBelow;
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "width=\"{0:.0f}\" height=\"{1:.0f}\" font-family=\"sans-serif\" font-size=\"13\">\n"
      "<style>\n{2}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{3}\n",
      kAll, below + kEntry * static_cast<double>(plot.lines.size()), kFileStyle,
      drawing(plot, options));
  for (const Line& line : plot.lines) {
    text += fmt::format(
        "<rect class=\"{}\" x=\"{:.0f}\" y=\"{:.0f}\" width=\"24\" height=\"3\"/>"
        "<text x=\"{:.0f}\" y=\"{:.0f}\">{}</text>\n",
        colour_of(line), kLeft, below, kLeft + 32, below + 5, escaped(line.name));
    below += kEntry;
  }
  return text + "</svg>\n";
}

std::string stacked_chart(const std::vector<Area>& areas, const StackOptions& options) {
  size_t moments = 0;
  for (const Area& area : areas) moments = std::max(moments, area.values.size());
  if (moments == 0) return "";
  std::vector<double> below(moments, 0), top(moments, 0);
  for (const Area& area : areas)
    for (size_t i = 0; i < moments; ++i) top[i] += area.values[i];
  Axis y;
  for (const double value : top) y.add(value);
  place_linear(y, 4, options.unit, true, true);
  const auto across = [&](size_t i) {
    return right(moments > 1 ? static_cast<double>(i) / static_cast<double>(moments - 1) : 0.5);
  };
  std::string text = begin_figure(options.title, "stack") + "<ul class=\"legend\">";
  for (auto area = areas.rbegin(); area != areas.rend(); ++area)
    text += legend_entry(area->name, area->style, false);
  text += "</ul>" + begin_svg(options.title, kTop + kHeight + kBelow);
  text += frame(y, options.unit, options.y);
  Json series = Json::array();
  for (const Area& area : areas) {
    std::string upper, lower;
    Json values = Json::array();
    for (size_t i = 0; i < moments; ++i) {
      const double high = below[i] + area.values[i];
      upper += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : "L", across(i), down(y.share(high)));
      const size_t back = moments - 1 - i;
      lower += fmt::format("L{:.1f} {:.1f}", across(back), down(y.share(below[back])));
      values.push_back(area.values[i]);
    }
    for (size_t i = 0; i < moments; ++i) below[i] += area.values[i];
    text += fmt::format("<path class=\"area {}\" d=\"{}{}z\"/>", area.style, upper, lower);
    series.push_back({{"name", area.name}, {"style", area.style}, {"y", values}});
  }
  for (const Stretch& stretch : options.stretches) {
    const double from = across(stretch.begin), to = across(std::min(stretch.end, moments - 1));
    if (stretch.begin > 0)
      text +=
          fmt::format("<path class=\"border\" d=\"M{:.1f} {:.0f}v{:.0f}\"/>", from, kTop, kHeight);
    if (to - from > 60)
      text += fmt::format("<text class=\"mid stretch\" x=\"{:.1f}\" y=\"{:.0f}\">{}</text>",
                          (from + to) / 2, kTop + kHeight + 20, escaped(stretch.name));
  }
  if (options.marked < moments) {
    const double at = across(options.marked), height = down(y.share(top[options.marked]));
    const bool left = at > kLeft + kWidth / 2;
    text += fmt::format(
        "<path class=\"mark\" d=\"M{:.1f} {:.1f}V{:.0f}\"/><circle class=\"mark\" r=\"5\" "
        "cx=\"{:.1f}\" cy=\"{:.1f}\"/><text class=\"{} mark\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
        at, height, kTop + kHeight, at, height, left ? "end" : "start", at + (left ? -10 : 10),
        std::max(height - 8, kTop - 4), escaped(options.mark));
  }
  text += fmt::format("<path class=\"base\" d=\"M{:.0f} {:.0f}h{:.0f}\"/>", kLeft, kTop + kHeight,
                      kWidth);
  text += fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" class=\"mid axis\">{}</text></svg>",
                      kLeft + kWidth / 2, kTop + kHeight + 44, escaped(options.x));
  Json names = Json::array();
  for (const Stretch& stretch : options.stretches)
    names.push_back({{"name", stretch.name}, {"begin", stretch.begin}});
  return text + note_text(options.note) +
         data_of({{"unit", name_of(options.unit)},
                  {"moments", moments},
                  {"stretches", names},
                  {"low", y.least},
                  {"high", y.most},
                  {"series", series}});
}

std::string cell_chart(const Cells& cells, const std::string& title, const std::string& note,
                       const std::string& x) {
  const size_t rows = cells.names.size(), columns = cells.labels.size();
  if (rows == 0 || columns == 0) return "";
  constexpr double kNames = 210, kRow = 15;
  const double wide = std::min(60.0, (kAll - kNames - 10) / static_cast<double>(columns));
  const double height = kRow * static_cast<double>(rows);
  std::string text = begin_figure(title, "cells") + "<ul class=\"legend\">";
  std::vector<std::string> paths(cells.legend.size());
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column) {
      const int kind = cells.kinds[row][column];
      if (kind < 0) continue;
      paths[static_cast<size_t>(kind)] += fmt::format(
          "M{:.1f} {:.0f}h{:.1f}v{:.0f}h-{:.1f}z", kNames + wide * static_cast<double>(column),
          8 + kRow * static_cast<double>(row), wide * 0.94, kRow - 1, wide * 0.94);
    }
  for (size_t kind = 0; kind < paths.size(); ++kind)
    if (!paths[kind].empty())
      text += legend_entry(cells.legend[kind].first, cells.legend[kind].second, false);
  text += "</ul>" + begin_svg(title, height + 46);
  for (size_t kind = 0; kind < paths.size(); ++kind)
    if (!paths[kind].empty())
      text +=
          fmt::format("<path class=\"cell {}\" d=\"{}\"/>", cells.legend[kind].second, paths[kind]);
  for (size_t row = 0; row < rows; ++row)
    text += fmt::format("<text class=\"end small\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", kNames - 6,
                        8 + kRow * static_cast<double>(row) + 11, escaped(cells.names[row], 34));
  for (size_t column = 0; column < columns; column += std::max<size_t>(1, (columns + 7) / 8))
    text += fmt::format("<text class=\"start small\" x=\"{:.1f}\" y=\"{:.0f}\">{}</text>",
                        kNames + wide * static_cast<double>(column), height + 24,
                        escaped(cells.labels[column]));
  text += fmt::format("<text class=\"mid axis\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text></svg>",
                      kNames + wide * static_cast<double>(columns) / 2, height + 42, escaped(x));
  return text + note_text(note) + "</figure>\n";
}

}  // namespace frugal::apps
