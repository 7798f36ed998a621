#include <cstdio>
#include <filesystem>

#include "apps/commands.h"
#include "apps/evaluate.h"
#include "apps/makers.h"
#include "apps/report.h"
#include "apps/signals.h"
#include "apps/trainer.h"
#include "apps/weights.h"
#include "data/safetensors.h"

namespace frugal::apps {
namespace {

void print_json(const Json& document) { std::printf("%s\n", document.dump(2).c_str()); }

std::string title(const Config& config) {
  const std::string recipes = config.compression.recipes ? ", recipes" : "";
  return config.model.name + ", " + config.compression.level + recipes;
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
  const Device device = set_up_device(config.run);
  if (device.type == DeviceType::meta)
    throw ConfigError("device", "expected cpu: nothing can be evaluated on meta");
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
  std::vector<std::string> names;
  std::vector<Json> summaries;
  Json all = Json::object();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/summary.json";
    FRUGAL_CHECK(std::filesystem::exists(path), "[compare] {} holds no finished run: no {}", folder,
                 path);
    const Config config = parse_config(read_json(folder + "/config.json"));
    names.push_back(std::filesystem::path(folder).filename().string() + ": " + title(config));
    summaries.push_back(read_json(path));
    all[folder] = summaries.back();
  }
  if (json) return print_json(all);
  try {
    std::printf("%s", summary_table(names, summaries).c_str());
  } catch (const Json::exception& e) {
    throw Error(fmt::format("[compare] expected summaries of finished runs: {}", e.what()));
  }
}

}  // namespace frugal::apps
