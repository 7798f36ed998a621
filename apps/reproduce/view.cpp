#include "apps/reproduce/view.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "apps/reproduce/measures.h"
#include "apps/reproduce/runner.h"
#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

ViewCell::Value over_seeds(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  for (const double value : values) squares += (value - sum / count) * (value - sum / count);
  return {sum / count, count > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

// The results of `cell` in place of those of a smaller scale.
void fill(ViewCell& shown, const Cell& cell, const ResultStore& store, const std::string& out) {
  shown.exists = true;
  const auto results = store.find(key_of(cell, 0));
  if (results.empty() && shown.seeds > 0) return;
  shown.scale = cell.scale;
  shown.command = "frugal " + shell_line(command_of(cell, out, has_seeds(cell.kind) ? 1 : 0));
  if (results.empty()) return;
  shown.seeds = static_cast<int64_t>(results.size());
  shown.values.clear();
  shown.seconds = 0;
  for (const std::string& metric : metric_names(cell.kind)) {
    const std::string part = cell.part.empty() ? metric : metric + ":" + cell.part;
    std::vector<double> values;
    for (const auto& [seed, result] : results)
      if (result.values.contains(part) && result.values.at(part).is_number())
        values.push_back(result.values.at(part).get<double>());
    if (!values.empty()) shown.values[metric] = over_seeds(values);
  }
  if (cell.kind == CellKind::accuracy && cell.search == nullptr) shown.values["cost"] = {1, 0};
  std::set<std::string> choices;
  for (const auto& [seed, result] : results)
    if (result.values.contains("choice"))
      choices.insert(result.values.at("choice").get<std::string>());
  shown.choice = fmt::format("{}", fmt::join(choices, "; "));
  for (const auto& [seed, result] : results) shown.seconds += result.seconds;
  const StoredResult& last = results.rbegin()->second;
  shown.version = last.version;
  shown.date = last.date.substr(0, last.date.find(' '));
  shown.note = last.values.value("note", "");
  shown.processor = last.machine.value("gpu", last.machine.value("processor", ""));
}

std::string number_text(double value) {
  std::string text = fmt::format("{:.4f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

}  // namespace

View view_of(const TableFile& table, const ResultStore& store, const std::string& out,
             Scale least) {
  View view;
  view.table = table;
  view.has_columns = !(table.columns.size() == 1 && table.columns[0].name.empty());
  std::map<std::pair<std::string, std::string>, size_t> places;
  for (const TableRow& row : table.rows)
    for (const TableColumn& column : table.columns) {
      ViewLine line{row.name, column.name, row.unavailable, {}, {}};
      for (const Published& published : row.published)
        if (published.column == column.name) line.published[published.metric] = published;
      places[{row.name, column.name}] = view.lines.size();
      view.lines.push_back(line);
    }
  for (const Scale scale : kScales) {
    if (scale < least || !table.scales.contains(scale)) continue;
    for (const Cell& cell : cells_of(table, scale))
      fill(view.lines[places.at({cell.row, cell.column})].cells[cell.way], cell, store, out);
  }
  std::erase_if(view.lines,
                [](const ViewLine& line) { return line.cells.empty() && line.published.empty(); });
  return view;
}

bool ViewLine::was_run() const {
  return std::any_of(cells.begin(), cells.end(),
                     [](const auto& cell) { return cell.second.seeds > 0; });
}

bool ViewLine::is_stand_in() const {
  return was_run() && std::all_of(cells.begin(), cells.end(), [](const auto& cell) {
           return cell.second.seeds == 0 || cell.second.scale == Scale::smoke;
         });
}

std::string row_text(const ViewLine& line) {
  return line.row + (line.is_stand_in() ? " (smoke: a tiny stand-in)" : "");
}

std::string unrun_text(const View& view) {
  std::vector<std::string> names;
  for (const ViewLine& line : view.lines)
    if (!line.was_run() && line.unavailable.empty())
      names.push_back(view.has_columns ? line.row + ", " + line.column : line.row);
  return names.empty() ? "" : fmt::format("Rows that were not run: {}.", fmt::join(names, "; "));
}

std::string published_text(const ViewLine& line, const std::string& metric) {
  const auto found = line.published.find(metric);
  if (found == line.published.end() || line.is_stand_in()) return "";
  const std::string& unit = found->second.unit;
  return number_text(found->second.value) + (unit.empty() ? "" : " " + unit);
}

std::string cell_text(const ViewLine& line, Way way, const std::string& metric) {
  const auto found = line.cells.find(way);
  if (found == line.cells.end() || !found->second.exists) return "-";
  const ViewCell& cell = found->second;
  if (cell.seeds == 0) return kNotRun;
  const auto value = cell.values.find(metric);
  if (value == cell.values.end()) return "-";
  const Metric& shown = metric_named(metric);
  std::string text = in_unit(shown, value->second.mean);
  if (cell.seeds > 1 && shown.over_seeds)
    text +=
        fmt::format(" +- {} ({})",
                    shown.unit == Metric::Unit::ratio ? fmt::format("{:.2g}", value->second.spread)
                                                      : fmt::format("{:.2f}", value->second.spread),
                    cell.seeds);
  if (cell.scale != Scale::full) text += fmt::format(" [{}]", name_of(cell.scale));
  return text;
}

std::vector<std::string> notes_of(const View& view) {
  std::vector<std::string> notes;
  std::map<std::string, std::set<std::string>> metrics_at;
  for (const ViewLine& line : view.lines)
    for (const auto& [metric, published] : line.published)
      metrics_at[published.where].insert(metric_named(metric).title);
  for (const auto& [where, metrics] : metrics_at)
    notes.push_back(fmt::format("Published {}: {}.", fmt::join(metrics, ", "), where));
  std::set<std::string> seen;
  for (const ViewLine& line : view.lines) {
    if (!line.unavailable.empty() && seen.insert(line.row).second)
      notes.push_back(fmt::format("{}: {}.", line.row, line.unavailable));
    for (const auto& [metric, published] : line.published)
      if (!published.note.empty() && seen.insert(line.row + published.note).second)
        notes.push_back(fmt::format("{}: {}.", line.row, published.note));
  }
  std::map<std::string, std::set<std::string>> settings;  // by what their steps were counted with
  for (const ViewLine& line : view.lines)
    for (const auto& [way, cell] : line.cells)
      if (!cell.note.empty())
        settings[cell.note].insert(
            fmt::format("{}, {}", view.has_columns ? line.column : line.row, title_of(way)));
  for (const auto& [note, which] : settings)
    notes.push_back(
        fmt::format("Counted without values, with {}: {}.", note, fmt::join(which, "; ")));
  for (const ViewLine& line : view.lines)
    for (const auto& [way, cell] : line.cells)
      if (!cell.choice.empty())
        notes.push_back(fmt::format("Chosen by {}, {}: {}.", line.row, title_of(way), cell.choice));
  std::set<std::string> runs;
  std::set<std::string> scales;
  for (const ViewLine& line : view.lines)
    for (const auto& [way, cell] : line.cells)
      if (cell.seeds > 0) {
        runs.insert(fmt::format("version {}, {}", cell.version, cell.processor));
        if (cell.scale != Scale::full) scales.insert(name_of(cell.scale));
      }
  for (const std::string& scale : scales)
    notes.push_back(fmt::format("[{}]: not run at full scale.", scale));
  if (std::any_of(view.lines.begin(), view.lines.end(),
                  [](const ViewLine& line) { return line.is_stand_in(); }))
    notes.emplace_back(
        "A stand-in has a tiny network and few data: it shows that everything works. What was "
        "published is of the row's own setting, so it does not stand beside it.");
  for (const std::string& run : runs) notes.push_back("Measured with " + run + ".");
  return notes;
}

}  // namespace frugal::apps
