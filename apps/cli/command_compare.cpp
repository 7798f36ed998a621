#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/config/keys/config_table.h"
#include "apps/whole_number.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"

namespace frugal::apps {
namespace {

// A row for each key in which the configurations differ.
std::string differences(const std::vector<std::string>& names, const std::vector<Config>& configs) {
  std::vector<std::vector<std::string>> rows = {{"differs"}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      const Json first = field.get(configs[0]);
      const auto differs = [&](const Config& c) { return field.get(c) != first; };
      if (std::none_of(configs.begin(), configs.end(), differs)) continue;
      std::vector<std::string> row = {section.path(field)};
      for (const Config& config : configs) {
        const Json value = field.get(config);
        row.push_back(value.is_string() ? printable(value.get<std::string>())
                                        : printable(value.dump(), 40));
      }
      rows.push_back(row);
    }
  return rows.size() == 1 ? "" : table(rows);
}

// Losses of runs that trained for different times cannot be compared.
std::string length_note(const std::vector<Json>& summaries) {
  std::vector<int64_t> steps;
  for (const Json& summary : summaries) steps.push_back(whole_number(summary.at("steps")));
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  if (*least == *most) return "";
  return fmt::format(
      "\nnote: the runs took {} steps; compare losses, accuracies and peaks of equal "
      "numbers of steps\n",
      fmt::join(steps, " and "));
}

}  // namespace

void compare_command(const std::vector<std::string>& folders, bool json) {
  std::vector<std::string> names, folders_shown;
  std::vector<Json> summaries;
  std::vector<Config> configs;
  Json all = Json::object();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/summary.json";
    if (!std::filesystem::exists(path))
      throw ConfigError("", fmt::format("[compare] {} holds no finished run: no {}",
                                        in_quotes(folder), in_quotes(path)));
    configs.push_back(parse_config(read_json(folder + "/config.json")));
    std::string name = std::filesystem::path(folder).lexically_normal().string();
    while (name.size() > 1 && name.back() == '/') name.pop_back();
    folders_shown.push_back(printable(std::filesystem::path(name).filename().string()));
    names.push_back(folders_shown.back() + ": " + run_title(configs.back()));
    summaries.push_back(read_json(path));
    all[folder] = summaries.back();
  }
  if (json) return print_json(all);
  try {
    std::printf("%s", summary_table(names, summaries).c_str());
    if (summaries.size() > 1)
      std::printf("(0.50x: half of the first run's)\n%s", length_note(summaries).c_str());
    if (const std::string rows = differences(folders_shown, configs); !rows.empty())
      std::printf("\n%s", rows.c_str());
  } catch (const std::exception& e) {
    throw Error(
        fmt::format("[compare] expected summaries of finished runs: {}", data::json_reason(e)));
  }
}

}  // namespace frugal::apps
