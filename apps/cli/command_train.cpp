#include <cstdio>
#include <cstdlib>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/cli/training_run.h"
#include "apps/config/resolve.h"
#include "core/log.h"

namespace frugal::apps {
namespace {

void print_json(const Json& document) { std::printf("%s\n", document.dump(2).c_str()); }

}  // namespace

void train_command(const TrainArguments& arguments) {
  if (arguments.resume && arguments.out.empty())
    throw ConfigError("", "--resume: expected --out with the folder of the run");
  if (arguments.extend > 0 && !arguments.resume)
    throw ConfigError("",
                      "--extend: expected --resume, since it lets a run go on; a new run takes "
                      "train.epochs");
  if (arguments.quiet && std::getenv("FRUGAL_LOG") == nullptr) log().set_level(spdlog::level::err);
  std::vector<std::string> sets = arguments.sets;
  if (!arguments.init_from.empty())
    sets.push_back("model.weights=" + Json(arguments.init_from).dump());
  Config config = load_config(arguments.config, sets);
  if (arguments.extend > 0)
    (config.train.steps > 0 ? config.train.steps : config.train.epochs) = arguments.extend;
  resolve(config);
  catch_signals();
  TrainOptions options;
  options.out = arguments.out;
  options.resume = arguments.resume;
  options.extend = arguments.extend > 0;
  options.quiet = arguments.quiet;
  try {
    const Json summary = TrainingRun(config, options).run();
    if (arguments.json)
      print_json(summary);
    else
      std::printf("%s", summary_table({run_title(config)}, {summary}).c_str());
  } catch (const OutOfMemory& e) {
    throw Error(explain(e, config));
  }
}

}  // namespace frugal::apps
