#include "apps/compare.h"

#include <spdlog/fmt/fmt.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/memory.h"

namespace frugal::apps {
namespace {

using Json = nlohmann::json;

struct Run {
  std::string name;  // the directory's last component
  std::string path;  // of its summary.json
  Json summary;
};

Run read_run(const std::string& directory) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(directory).lexically_normal();
  const fs::path path = folder / "summary.json";
  std::ifstream file(path);
  FRUGAL_CHECK(file.good(), "[compare] expected {}, which `frugal train --out` writes, found none",
               path.string());
  Json summary = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  FRUGAL_CHECK(summary.is_object(), "[compare] expected a JSON object in {}", path.string());
  const fs::path last = folder.has_filename() ? folder.filename() : folder.parent_path().filename();
  return {last.string(), path.string(), std::move(summary)};
}

double number(const Run& run, const char* pointer) {
  const Json::json_pointer where(pointer);
  FRUGAL_CHECK(run.summary.contains(where) && run.summary.at(where).is_number(),
               "[compare] expected a number at {} in {}, found none", pointer, run.path);
  return run.summary.at(where).get<double>();
}

double at_peak(const Run& run, Category category) {
  return number(run, fmt::format("/memory/at_peak/{}", name_of(category)).c_str());
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", 100 * fraction); }
std::string mebibytes(double bytes) { return fmt::format("{:.2f} MiB", bytes / (1 << 20)); }
std::string milliseconds(double ms) { return fmt::format("{:.1f} ms", ms); }
std::string plain(double value) { return fmt::format("{:.0f}", value); }

struct Row {
  std::string label;
  std::function<double(const Run&)> value;
  std::string (*show)(double);
  bool ratio;
};

std::vector<Row> rows() {
  std::vector<Row> rows = {
      {"test accuracy", [](const Run& r) { return number(r, "/final/test_accuracy"); }, percent,
       false},
      {"best test accuracy", [](const Run& r) { return number(r, "/best/test_accuracy"); }, percent,
       false},
      {"activation memory",
       [](const Run& r) {
         return number(r, "/memory/activation_bytes") + number(r, "/memory/packed_bytes");
       },
       mebibytes, true},
      {"peak memory", [](const Run& r) { return number(r, "/memory/peak_bytes"); }, mebibytes,
       true}};
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    rows.push_back({fmt::format("  {}", name_of(category)),
                    [category](const Run& r) { return at_peak(r, category); }, mebibytes, true});
  }
  rows.push_back({"step time (median)",
                  [](const Run& r) { return number(r, "/speed/step_ms_median"); }, milliseconds,
                  true});
  rows.push_back({"samples per second",
                  [](const Run& r) { return number(r, "/speed/samples_per_second"); }, plain,
                  true});
  return rows;
}

}  // namespace

std::string compare_runs(const std::vector<std::string>& directories) {
  FRUGAL_CHECK(!directories.empty(), "[compare] expected at least one run's directory, got none");
  std::vector<Run> runs;
  for (const std::string& directory : directories) runs.push_back(read_run(directory));
  const Run& first = runs.front();

  std::string table = fmt::format("{:22}{:>14}", "", first.name);
  for (size_t i = 1; i < runs.size(); ++i) {
    table += fmt::format("{:>14}{:>14}", runs[i].name, first.name + " / " + runs[i].name);
  }
  table += '\n';
  for (const Row& row : rows()) {
    const double base = row.value(first);
    std::string line = fmt::format("{:22}{:>14}", row.label, row.show(base));
    for (size_t i = 1; i < runs.size(); ++i) {
      const double value = row.value(runs[i]);
      const std::string ratio =
          row.ratio && value > 0 ? fmt::format("{:.2f}x", base / value) : std::string();
      line += fmt::format("{:>14}{:>14}", row.show(value), ratio);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + '\n';
  }
  return table;
}

}  // namespace frugal::apps
