#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <set>

#include "apps/cli/child_process.h"
#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/reproduce/measures.h"
#include "apps/reproduce/runner.h"
#include "apps/reproduce/writers.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/fetch/sources.h"
#include "data/formats/atomic_file.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// Tables by name, or the files themselves.
std::vector<TableFile> chosen_tables(const std::vector<std::string>& names,
                                     const std::string& folder) {
  std::vector<TableFile> chosen, all;
  for (const std::string& name : names) {
    if (name.ends_with(".json")) {
      chosen.push_back(read_table(name));
      continue;
    }
    if (all.empty()) all = read_tables(folder);
    const auto found = std::find_if(all.begin(), all.end(), [&](const TableFile& table) {
      return data::same_name(table.name, name);
    });
    if (found == all.end()) {
      std::vector<std::string> known;
      for (const TableFile& table : all) known.push_back(table.name);
      throw ConfigError("", fmt::format("expected one of {}, or a file that ends in .json; got {}",
                                        fmt::join(known, ", "), in_quotes(name)));
    }
    chosen.push_back(*found);
  }
  return chosen;
}

// How much of a table is done at a scale: how many results there are, how many there are to be, and
// what this machine lacks for the others.
struct Done {
  int64_t results = 0, all = 0;
  std::set<std::string> missing;
};

Done done_of(const TableFile& table, Scale scale, const ResultStore& store) {
  Done done;
  for (const Cell& cell : cells_of(table, scale)) {
    const auto results = store.find(key_of(cell, 0));
    int64_t has = 0;
    for (int64_t i = 0; i < cell.seeds; ++i)
      has += results.contains(has_seeds(cell.kind) ? i + 1 : 0) ? 1 : 0;
    done.results += has;
    done.all += cell.seeds;
    if (const std::string missing = missing_need(cell); has < cell.seeds && !missing.empty())
      done.missing.insert(missing);
  }
  return done;
}

std::string needs_text(const TableScale& scale) {
  const std::string hours = scale.hours >= 1  ? fmt::format("{:.4g} h", scale.hours)
                            : scale.hours > 0 ? fmt::format("{:.0f} min", 60 * scale.hours)
                                              : std::string();
  std::string text = scale.device;
  if (!hours.empty()) text += ", " + hours;
  if (!scale.data.empty()) text += fmt::format(", {}", fmt::join(scale.data, ", "));
  return text;
}

void list(const std::vector<TableFile>& tables, const ResultStore& store, bool json) {
  Json listed = Json::array();
  std::string text;  // its lines have at most 80 characters, where names are not longer
  for (const TableFile& table : tables) {
    Json scales = Json::object();
    for (const auto& [scale, part] : table.scales) {
      const Done done = done_of(table, scale, store);
      if (scales.empty()) text += fmt::format("{}: {}\n", table.name, table.title);
      scales[name_of(scale)] = {{"results", done.results}, {"of", done.all},
                                {"device", part.device},   {"data", part.data},
                                {"hours", part.hours},     {"missing", done.missing}};
      text += fmt::format("  {:<8}{:>4} of {:<4} {}\n", name_of(scale), done.results, done.all,
                          needs_text(part));
      for (const std::string& missing : done.missing)
        text += fmt::format("  {:<20} not here: {}\n", "", missing);
    }
    listed.push_back({{"name", table.name},
                      {"title", table.title},
                      {"paper", table.paper},
                      {"place", table.place},
                      {"scales", scales}});
  }
  if (json) {
    print_json(listed);
    return;
  }
  std::printf("Results of each table at each scale, and what a scale needs:\n%s", text.c_str());
}

void print_commands(const std::vector<Cell>& cells, const std::string& out) {
  std::set<std::string> printed;  // hashes of pre-trainings
  const auto print = [&](const Cell& cell) {
    save_base(cell, out);
    std::printf("# %s: %s\nfrugal %s\n", cell.table.c_str(), cell.title().c_str(),
                shell_line(command_of(cell, out, has_seeds(cell.kind) ? 1 : 0)).c_str());
  };
  for (const Cell& cell : cells) {
    if (cell.pretraining != nullptr && printed.insert(cell.pretraining->hash).second)
      print(*cell.pretraining);
    print(cell);
  }
}

void write_tables(const std::vector<TableFile>& tables, const ResultStore& store,
                  const std::string& out) {
  std::vector<View> views;
  for (const TableFile& table : tables) {
    views.push_back(view_of(table, store, out));
    const std::string path = out + "/" + table.name;
    data::atomic_write(path + ".md", markdown_of(views.back()));
    data::atomic_write(path + ".csv", csv_of(views.back()));
    data::atomic_write(path + ".html", html_of(views.back()));
  }
  data::atomic_write(out + "/index.html", html_index(views));
}

// The index lists what earlier calls wrote, too.
std::vector<TableFile> with_written(std::vector<TableFile> tables, const std::string& folder,
                                    const std::string& out) {
  std::error_code none;
  if (!fs::is_directory(folder, none)) return tables;
  for (TableFile& other : read_tables(folder))
    if (fs::exists(out + "/" + other.name + ".md", none) &&
        std::none_of(tables.begin(), tables.end(),
                     [&](const TableFile& table) { return table.name == other.name; }))
      tables.push_back(other);
  return tables;
}

// For people: each line of the table is a heading and a line for each metric, so that the page fits
// a terminal.
class Page {
 public:
  void add_heading(const std::string& text) { lines_.push_back({text, {}}); }
  void add(const std::string& metric, std::vector<std::string> cells) {
    for (size_t i = 0; i < cells.size(); ++i) widths_[i] = std::max(widths_[i], columns(cells[i]));
    first_ = std::max(first_, columns(metric));
    lines_.push_back({metric, std::move(cells)});
  }
  std::string text() const {
    std::string all;
    for (const auto& [name, cells] : lines_) {
      all += cells.empty() ? name : "  " + name + std::string(first_ - columns(name), ' ');
      for (size_t i = 0; i < cells.size(); ++i)
        all += std::string(2 + widths_[i] - columns(cells[i]), ' ') + cells[i];
      all += '\n';
    }
    return all;
  }

 private:
  // How many characters the UTF-8 text has.
  static size_t columns(const std::string& text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    }));
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> lines_;
  std::array<size_t, 1 + kWays.size()> widths_{};
  size_t first_ = 0;
};

void print_results(const std::vector<TableFile>& tables, const ResultStore& store,
                   const std::string& out, bool json) {
  Json all = Json::array();
  for (const TableFile& file : tables) {
    const View view = view_of(file, store, out);
    Json lines = Json::array();
    Page page;
    page.add_heading(fmt::format("{}: {}", file.name, file.title));
    page.add("", {"published", title_of(Way::as_published), title_of(Way::ours)});
    for (const ViewLine& line : view.lines) {
      const bool folded = !line.was_run() && line.unavailable.empty();
      const std::string name = row_text(line);
      if (!folded)
        page.add_heading(view.has_columns ? fmt::format("{}: {}", name, line.column) : name);
      Json values = Json::object();
      for (const std::string& metric : file.show) {
        std::vector<std::string> cells = {published_text(line, metric)};
        const auto published = line.published.find(metric);
        values[metric]["published"] =
            published == line.published.end() ? Json(nullptr) : Json(published->second.value);
        for (const Way way : kWays) {
          cells.push_back(line.unavailable.empty() ? cell_text(line, way, metric) : "-");
          const auto cell = line.cells.find(way);
          const bool has = cell != line.cells.end() && cell->second.values.contains(metric);
          values[metric][name_of(way)] =
              has ? Json({{"mean", cell->second.values.at(metric).mean},
                          {"spread", cell->second.values.at(metric).spread},
                          {"seeds", cell->second.seeds},
                          {"scale", name_of(cell->second.scale)},
                          {"command", cell->second.command}})
                  : Json(nullptr);
        }
        if (!folded) page.add(metric, std::move(cells));
      }
      lines.push_back({{"row", line.row}, {"setting", line.column}, {"values", values}});
    }
    all.push_back({{"table", file.name}, {"lines", lines}});
    const std::string unrun = unrun_text(view);
    if (!json)
      std::printf("%s%s%s\n", page.text().c_str(), unrun.c_str(), unrun.empty() ? "" : "\n");
  }
  if (json) print_json(all);
}

}  // namespace

void reproduce_command(const ReproduceArguments& arguments) {
  const std::string folder = arguments.tables.empty() ? tables_folder() : arguments.tables;
  const Scale scale = scale_named(arguments.scale);
  const std::string& out = arguments.out;
  // Before the store: a mistake leaves no file.
  const std::vector<TableFile> tables = chosen_tables(arguments.names, folder);
  const std::vector<TableFile> all =
      tables.empty() || !arguments.page.empty() ? read_tables(folder) : std::vector<TableFile>();
  for (const TableFile& table : tables)
    if (!table.scale_for(scale))
      throw ConfigError("", fmt::format("--scale: {} has no scale {}", table.name, name_of(scale)));
  const std::string file = out + "/results.sqlite";
  const bool writes = !tables.empty() && !arguments.commands;
  ResultStore store(writes || fs::exists(file) ? file : ":memory:");
  RunnerReport report;
  if (!tables.empty()) {
    std::vector<Cell> cells;
    for (const TableFile& table : tables)
      for (Cell& cell : cells_of(table, *table.scale_for(scale), arguments.seeds,
                                 {arguments.device, arguments.precision}))
        cells.push_back(std::move(cell));
    if (arguments.commands) return print_commands(cells, out);
    RunnerOptions options;
    options.out = out;
    options.jobs = arguments.jobs;
    options.say = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
    report = run_cells(cells, store, options);
    for (const auto& [missing, count] : report.left_out)
      std::fprintf(stderr, "left out, for want of %s: %s\n", missing.c_str(),
                   with_noun(count, "result").c_str());
    write_tables(with_written(tables, folder, out), store, out);
  }
  if (!arguments.page.empty()) {
    std::vector<View> views;
    for (const TableFile& table : all) views.push_back(view_of(table, store, out, Scale::reduced));
    data::atomic_write(arguments.page, results_page(views, file_text(arguments.page)));
  }
  if (tables.empty() && arguments.page.empty()) {
    list(all, store, arguments.json);
    return;
  }
  if (!tables.empty()) print_results(tables, store, out, arguments.json);
  if (!report.failed.empty())
    throw Error(fmt::format("{} of the cells failed:\n{}", report.failed.size(),
                            fmt::join(report.failed, "\n")));
}

}  // namespace frugal::apps
