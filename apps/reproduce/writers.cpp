#include "apps/reproduce/writers.h"

#include <algorithm>
#include <sstream>
#include <tuple>

#include "apps/cli/report.h"
#include "apps/report/chart.h"
#include "apps/report/html.h"
#include "apps/reproduce/measures.h"
#include "apps/text/csv.h"
#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

constexpr const char* kSources[] = {"published", "as published", "ours"};
constexpr const char* kMadeOf = "results.sqlite";

// Heads and rows of the table, as all formats show them.
struct Grid {
  size_t labels = 1;                // columns of names, before those of values
  std::vector<std::string> groups;  // metrics; each has one column for each of kSources
  std::vector<std::vector<std::string>> rows;
};

// `folded`: without rows that were not run, which a note names.
Grid grid_of(const View& view, bool folded) {
  Grid grid;
  grid.labels = view.has_columns ? 2 : 1;
  for (const std::string& metric : view.table.show)
    grid.groups.push_back(metric_named(metric).title);
  std::string above;
  for (const ViewLine& line : view.lines) {
    if (folded && !line.was_run() && line.unavailable.empty()) continue;
    const std::string name = row_text(line);
    std::vector<std::string> row = {name == above ? "" : name};
    above = name;
    if (view.has_columns) row.push_back(line.column);
    for (const std::string& metric : view.table.show) {
      row.push_back(published_text(line, metric));
      for (const Way way : kWays)
        row.push_back(line.unavailable.empty() ? cell_text(line, way, metric) : "-");
    }
    grid.rows.push_back(row);
  }
  return grid;
}

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

// With the sign for "plus or minus".
std::string with_sign(const std::string& text) { return replaced(text, " +- ", " ± "); }

// The notes of a table whose rows are folded.
std::vector<std::string> folded_notes(const View& view) {
  std::vector<std::string> notes = notes_of(view);
  if (const std::string unrun = unrun_text(view); !unrun.empty())
    notes.insert(notes.begin(), unrun);
  return notes;
}

// However long.
std::string in_html(const std::string& text) { return escaped(text, text.size()); }

std::string in_markdown(const std::string& text) { return replaced(text, "|", "\\|"); }

std::string unit_of(const Metric& metric) {
  switch (metric.unit) {
    case Metric::Unit::bytes:
      return "B";
    case Metric::Unit::percent:
      return "%";
    case Metric::Unit::bits:
      return "bits";
    case Metric::Unit::times:
    case Metric::Unit::count:
    case Metric::Unit::loss:
    case Metric::Unit::ratio:
      break;
  }
  return "";
}

// "activations, ours": the head of a column of values.
std::string head_of(const std::string& group, const char* source) {
  return fmt::format("{}, {}", group, source);
}

std::string markdown_table(const View& view, const Grid& grid) {
  std::string heads = view.has_columns ? "| | setting |" : "| |";
  std::string rule = view.has_columns ? "|---|---|" : "|---|";
  for (const std::string& group : grid.groups)
    for (const char* source : kSources) {
      heads += fmt::format(" {} |", head_of(group, source));
      rule += "---:|";
    }
  std::string text = heads + "\n" + rule + "\n";
  for (const auto& row : grid.rows) {
    text += "|";
    for (const std::string& cell : row) text += " " + in_markdown(cell) + " |";
    text += "\n";
  }
  return text;
}

// The texts between the bars of a line of a Markdown table.
std::vector<std::string> cells_of_line(const std::string& line) {
  std::vector<std::string> cells;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      cell += line[++i];
    } else if (line[i] == '|') {
      const size_t begin = cell.find_first_not_of(' '), end = cell.find_last_not_of(' ');
      cells.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  return cells;
}

// What a section of a page shows: values by row, setting and head, and the lines of notes.
struct ShownSection {
  std::map<std::tuple<std::string, std::string, std::string>, std::string> values;
  std::vector<std::string> notes;
};

ShownSection parsed_section(const std::string& text, size_t labels) {
  ShownSection section;
  std::vector<std::string> heads;
  std::string row;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("- ")) section.notes.push_back(line.substr(2));
    if (!line.starts_with("|")) continue;
    const std::vector<std::string> cells = cells_of_line(line);
    if (heads.empty()) heads = cells;
    if (cells.size() != heads.size() || cells.size() < labels) continue;
    if (!cells[0].empty()) row = cells[0];
    for (size_t i = labels; i < cells.size(); ++i)
      section.values[{row, labels > 1 ? cells[1] : "", heads[i]}] = cells[i];
  }
  return section;
}

// Puts what `before` shows in the place of cells of `grid` that have no result. Was there such a
// cell?
bool keep_values(Grid& grid, const ShownSection& before) {
  bool kept = false;
  std::string name;
  for (auto& row : grid.rows) {
    if (!row[0].empty()) name = row[0];
    size_t at = grid.labels;
    for (const std::string& group : grid.groups)
      for (const char* source : kSources) {
        std::string& cell = row[at++];
        const auto found =
            before.values.find({name, grid.labels > 1 ? row[1] : "", head_of(group, source)});
        if (cell != kNotRun || found == before.values.end() || found->second == kNotRun ||
            found->second == "-")
          continue;
        cell = found->second;
        kept = true;
      }
  }
  return kept;
}

// Does a note tell of runs, rather than of what was published?
bool tells_of_runs(const std::string& note) {
  const char* kinds[] = {"Counted without values", "Chosen by", "Measured with", "["};
  return std::any_of(std::begin(kinds), std::end(kinds),
                     [&](const char* kind) { return note.starts_with(kind); });
}

std::string place_of(const TableFile& table) {
  return fmt::format("{}: {}.", table.paper, table.place);
}

struct Series {
  std::string name;
  std::vector<std::tuple<double, double, std::string>> points;  // x, y and the setting
};

std::vector<Series> series_of(const View& view) {
  std::vector<Series> all;
  const auto series = [&](const std::string& name) -> Series& {
    for (Series& each : all)
      if (each.name == name) return each;
    all.push_back({name, {}});
    return all.back();
  };
  const TablePlot& plot = *view.table.plot;
  for (const ViewLine& line : view.lines) {
    const auto px = line.published.find(plot.x), py = line.published.find(plot.y);
    const auto size = [](const Published& value) { return value.value * size_of_unit(value.unit); };
    if (px != line.published.end() && py != line.published.end())
      series(line.row + ", published")
          .points.emplace_back(size(px->second), size(py->second), line.column);
    for (const auto& [way, cell] : line.cells) {
      const auto x = cell.values.find(plot.x), y = cell.values.find(plot.y);
      if (x != cell.values.end() && y != cell.values.end())
        series(line.row + ", " + title_of(way))
            .points.emplace_back(x->second.mean, y->second.mean, line.column);
    }
  }
  for (Series& each : all) std::sort(each.points.begin(), each.points.end());
  return all;
}

bool was_run(const View& view) {
  return std::any_of(view.lines.begin(), view.lines.end(),
                     [](const ViewLine& line) { return line.was_run(); });
}

// The part of a results page that shows one table, with the line break before its heading. Empty:
// the page has no such part.
std::string section_of(const std::string& page, const std::string& table) {
  const size_t begin = page.find(fmt::format("\n## {}\n", table));
  if (begin == std::string::npos) return "";
  const size_t end = page.find("\n## ", begin + 1);
  return page.substr(begin, end == std::string::npos ? end : end - begin);
}

// Each cell with the command that measures it: title and command.
std::vector<std::pair<std::string, std::string>> commands_of(const View& view) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const ViewLine& line : view.lines)
    for (const auto& [way, cell] : line.cells)
      if (cell.exists)
        all.emplace_back(
            line.row + (line.column.empty() ? "" : ", " + line.column) + ", " + title_of(way),
            cell.command);
  return all;
}

}  // namespace

std::string figure_of(const View& view) {
  const Metric &x = metric_named(view.table.plot->x), &y = metric_named(view.table.plot->y);
  std::vector<Line> lines;
  for (const Series& series : series_of(view)) {
    Line line{series.name, {}, static_cast<int>(lines.size())};
    for (const auto& [at, value, setting] : series.points) {
      line.points.emplace_back(at, value);
      line.notes.push_back(fmt::format("{}{}: {}, {}", series.name,
                                       setting.empty() ? setting : ", " + setting, in_unit(x, at),
                                       in_unit(y, value)));
    }
    lines.push_back(std::move(line));
  }
  const auto unit = [](const Metric& metric) {
    return metric.unit == Metric::Unit::bytes ? Unit::decimal : Unit::number;
  };
  return line_chart(std::move(lines), {.title = y.title + " over " + x.title,
                                       .x = x.title,
                                       .y = y.title,
                                       .unit = unit(y),
                                       .x_unit = unit(x),
                                       .named = true});
}

std::string markdown_of(const View& view) {
  const TableFile& table = view.table;
  std::string text = fmt::format("# {}\n\n{} {}\n\n{}\n", table.title, place_of(table), table.text,
                                 markdown_table(view, grid_of(view, true)));
  for (const std::string& note : folded_notes(view)) text += "- " + in_markdown(note) + "\n";
  text += "\nCommands of the cells:\n\n";
  for (const auto& [title, command] : commands_of(view))
    text += fmt::format("- {}: `{}`\n", in_markdown(title), command);
  return with_sign(text);
}

std::string csv_of(const View& view) {
  std::string text = csv_line({"table", "row", "setting", "metric", "source", "value", "spread",
                               "unit", "seeds", "scale", "where", "command"});
  for (const ViewLine& line : view.lines)
    for (const std::string& name : view.table.show) {
      const Metric& metric = metric_named(name);
      const auto published = line.published.find(name);
      if (published != line.published.end())
        text += csv_line({view.table.name, line.row, line.column, name, "published",
                          fmt::format("{}", published->second.value), "", published->second.unit,
                          "", "full", published->second.where, ""});
      for (const auto& [way, cell] : line.cells) {
        const auto value = cell.values.find(name);
        if (value == cell.values.end()) continue;
        const bool bytes = metric.unit == Metric::Unit::bytes;
        const auto number = [&](double x) {
          return bytes ? fmt::format("{:.0f}", x) : fmt::format("{:.6g}", x);
        };
        text += csv_line({view.table.name, line.row, line.column, name, name_of(way),
                          number(value->second.mean),
                          cell.seeds > 1 ? number(value->second.spread) : "", unit_of(metric),
                          std::to_string(cell.seeds), name_of(cell.scale), "", cell.command});
      }
    }
  return text;
}

std::string html_of(const View& view) {
  const TableFile& table = view.table;
  const Grid grid = grid_of(view, true);
  std::string body = fmt::format(
      "<header><h1>{}</h1><p>{}</p></header>\n<nav><a href=\"index.html\">All tables</a></nav>\n"
      "<p>{}</p>\n",
      in_html(table.title), in_html(place_of(table)), in_html(table.text));
  if (table.plot) body += "<div class=\"grid\">" + figure_of(view) + "</div>\n";
  body +=
      fmt::format("<div class=\"card\"><table>\n<thead><tr><th colspan=\"{}\"></th>", grid.labels);
  for (const std::string& group : grid.groups)
    body += fmt::format("<th colspan=\"3\">{}</th>", in_html(group));
  body += "</tr>\n<tr><th></th>";
  if (view.has_columns) body += "<th class=\"left\">setting</th>";
  for (size_t i = 0; i < grid.groups.size(); ++i)
    for (const char* source : kSources) body += fmt::format("<th>{}</th>", source);
  body += "</tr></thead>\n<tbody>\n";
  for (const auto& row : grid.rows) {
    body += "<tr>";
    for (size_t i = 0; i < row.size(); ++i)
      body += fmt::format("<td{}>{}</td>", i < grid.labels ? " class=\"left\"" : "",
                          in_html(with_sign(row[i])));
    body += "</tr>\n";
  }
  body += "</tbody></table></div>\n<ul>\n";
  for (const std::string& note : folded_notes(view)) body += "<li>" + in_html(note) + "</li>\n";
  body += "</ul>\n<details><summary>Commands of the cells</summary>\n";
  for (const auto& [title, command] : commands_of(view))
    body += fmt::format("<p>{}</p><pre>{}</pre>\n", in_html(title), in_html(command));
  return html_page(table.title, body + "</details>\n", kMadeOf, false);
}

std::string html_index(const std::vector<View>& views) {
  const std::string title = "Tables and figures of the papers";
  std::string body = "<header><h1>" + title + "</h1></header>\n<ul>\n";
  for (const View& view : views)
    body += fmt::format("<li><a href=\"{}.html\">{}</a> <span class=\"note\">{}</span></li>\n",
                        in_html(view.table.name), in_html(view.table.title),
                        in_html(place_of(view.table)));
  return html_page(title, body + "</ul>\n", kMadeOf, false);
}

std::string results_page(const std::vector<View>& views, const std::string& before) {
  std::string text =
      "# Results\n\n"
      "`frugal reproduce --page docs/results.md` writes this page; nobody edits it. The tables and "
      "figures of the papers are in `configs/reproduce/`, and "
      "[guide/reproduce.md](guide/reproduce.md) says how to run them. "
      "Studies beside the papers are in [measurements.md](measurements.md).\n\n"
      "Each value stands three times: as it was published, as our program runs the paper's method "
      "(\"as published\"), and as it runs by default or with what the setting says (\"ours\").\n\n"
      "- **Activations**: bytes that are alive for the backward pass when the forward pass has "
      "ended. **Peak**: the highest total of a step by the allocator's count.\n"
      "- A step is counted on the device `meta`, which has no values: such figures are exact and "
      "repeat on any machine.\n"
      "- Values over seeds: mean ± standard deviation (number of seeds). `[reduced]`: not run at "
      "full scale. \"not run\": no result yet. \"-\": there is no such cell.\n"
      "- GB and MB are 10^9 and 10^6 bytes.\n\n";
  for (const View& view : views)
    text += fmt::format("- [{}](#{})\n", view.table.title, view.table.name);
  for (const View& view : views) {
    const TableFile& table = view.table;
    const std::string kept = section_of(before, table.name);
    if (!kept.empty() && !was_run(view)) {
      text += kept;
      continue;
    }
    text += fmt::format("\n## {}\n\n**{}.** {} {}\n\n```sh\n", table.name, table.title,
                        place_of(table), table.text);
    for (const auto& scale : table.scales)
      if (scale.first != Scale::smoke)
        text += fmt::format("frugal reproduce {} --scale {}\n", table.name, name_of(scale.first));
    std::vector<std::string> notes = notes_of(view);
    for (std::string& note : notes) note = in_markdown(note);
    Grid grid = grid_of(view, false);
    const ShownSection old = parsed_section(kept, grid.labels);
    if (keep_values(grid, old))
      for (const std::string& note : old.notes)
        if (tells_of_runs(note) && std::find(notes.begin(), notes.end(), note) == notes.end())
          notes.push_back(note);
    text += "```\n\n" + markdown_table(view, grid);
    if (!notes.empty()) text += "\n";
    for (const std::string& note : notes) text += "- " + note + "\n";
  }
  return with_sign(text);
}

}  // namespace frugal::apps
