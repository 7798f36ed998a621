#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/config/config_table.h"
#include "apps/config/makers.h"
#include "apps/evaluate.h"
#include "apps/trainer.h"
#include "apps/weights.h"
#include "data/formats/safetensors.h"

namespace frugal::apps {
namespace {

void print_json(const Json& document) { std::printf("%s\n", document.dump(2).c_str()); }

// "resnet20, L1, recipes", "resnet20, budget 1/16 activations", "resnet20, actnn L3".
std::string title(const Config& config) {
  const CompressionConfig& c = config.compression;
  const bool budget = c.policy == "budget" || !c.memory_budget.empty();
  const std::string policy = budget               ? "budget " + c.memory_budget
                             : c.policy == "acgc" ? fmt::format("acgc e={}", c.acgc_growth)
                             : c.policy == "gact" ? c.level
                                                  : c.policy + " " + c.level;
  const std::string bits = !budget && c.policy != "acgc" && c.bits > 0
                               ? fmt::format(" at {} bits", c.bits)
                           : c.average_bits > 0 ? fmt::format(" at {} bits", c.average_bits)
                                                : "";
  return config.model.name + ", " + policy + bits + (c.recipes && !budget ? ", recipes" : "");
}

// Where configurations differ: a row for each key.
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
        row.push_back(value.is_string() ? value.get<std::string>() : value.dump());
      }
      rows.push_back(row);
    }
  return rows.size() == 1 ? "" : table(rows);
}

// Runs that did not train equally long say little about each other's losses.
std::string length_note(const std::vector<Json>& summaries) {
  std::vector<int64_t> steps;
  for (const Json& summary : summaries) steps.push_back(summary.at("steps").get<int64_t>());
  const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
  if (*least == *most) return "";
  return fmt::format(
      "\nnote: the runs took {} steps; compare losses, accuracies and peaks of equal "
      "numbers of steps\n",
      fmt::join(steps, " and "));
}

}  // namespace

void train_command(const TrainArguments& arguments) {
  if (arguments.resume && arguments.out.empty())
    throw ConfigError("", "--resume: expected --out with the folder of the run");
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  catch_signals();
  TrainOptions options;
  options.out = arguments.out;
  options.resume = arguments.resume;
  try {
    const Json summary = Trainer(config, options).run();
    if (arguments.json)
      print_json(summary);
    else
      std::printf("%s", summary_table({title(config)}, {summary}).c_str());
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

void eval_command(const EvalArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  const Device device = set_up_computing_device(config.run, "evaluated");
  const auto file = data::SafetensorsFile::open(arguments.checkpoint);
  const auto batches = make_batches(config, Split::test);
  try {
    const auto model = make_model(config, batch_spec(config), device);
    load_weights(*model, file);
    const Evaluation result = *evaluate(*model, *batches, batch_spec(config));
    if (arguments.json)
      print_json(to_json(result));
    else
      std::printf("loss %.4f  accuracy %.2f %%  samples %lld\n", result.loss, 100 * result.accuracy,
                  static_cast<long long>(result.samples));
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

void compare_command(const std::vector<std::string>& folders, bool json) {
  std::vector<std::string> names, folders_shown;
  std::vector<Json> summaries;
  std::vector<Config> configs;
  Json all = Json::object();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/summary.json";
    FRUGAL_CHECK(std::filesystem::exists(path), "[compare] {} holds no finished run: no {}", folder,
                 path);
    configs.push_back(parse_config(read_json(folder + "/config.json")));
    std::string name = std::filesystem::path(folder).lexically_normal().string();
    while (name.size() > 1 && name.back() == '/') name.pop_back();
    folders_shown.push_back(std::filesystem::path(name).filename().string());
    names.push_back(folders_shown.back() + ": " + title(configs.back()));
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
  } catch (const Json::exception& e) {
    throw Error(fmt::format("[compare] expected summaries of finished runs: {}", e.what()));
  }
}

}  // namespace frugal::apps
