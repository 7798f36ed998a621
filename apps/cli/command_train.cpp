#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "apps/cli/commands.h"
#include "apps/cli/report.h"
#include "apps/cli/signals.h"
#include "apps/cli/training_run.h"
#include "apps/cli/version.h"
#include "apps/config/resolve.h"
#include "apps/config/starting_weights.h"
#include "apps/config/stored_run.h"
#include "core/log.h"
#include "data/formats/json_strict.h"

namespace frugal::apps {
namespace {

// Errors, on all ranks: another version, or another configuration but for keys without effect on
// results, than those of rank 0.
void check_same_run(distributed::Communicator& ranks, const Config& config) {
  const std::vector<std::string> versions =
      ranks.all_gather(kVersion, "the versions of the program");
  const std::vector<std::string> configs =
      ranks.all_gather(to_json(config).dump(), "the configurations");
  const Config first = parse_config(data::parse_json<Json>(configs[0]));
  for (size_t r = 1; r < configs.size(); ++r) {
    if (versions[r] != versions[0])
      throw Error(
          fmt::format("[distributed] expected one version of frugal, got {} on rank 0 and "
                      "{} on rank {}",
                      versions[0], versions[r], r));
    const std::string key =
        first_difference(first, parse_config(data::parse_json<Json>(configs[r])));
    if (!key.empty())
      throw ConfigError(key, fmt::format("expected one configuration on all ranks, but that of "
                                         "rank {} differs from that of rank 0 here",
                                         r));
  }
}

}  // namespace

void train_command(const TrainArguments& arguments) {
  if (arguments.resume && arguments.out.empty())
    throw ConfigError("", "--resume: expected --out with the folder of the run");
  if (arguments.extend > 0 && !arguments.resume)
    throw ConfigError("",
                      "--extend: expected --resume, since it lets a run go on; a new run takes "
                      "train.epochs");
  if (arguments.data_changed && !arguments.resume)
    throw ConfigError("",
                      "--data-changed: expected --resume; a new run takes the data as they are");
  if (arguments.overwrite && (arguments.out.empty() || arguments.resume))
    throw ConfigError(
        "", arguments.resume ? "--overwrite: expected no --resume, which continues the run that "
                               "--overwrite replaces"
                             : "--overwrite: expected --out with the folder of the run to replace");
  if (arguments.quiet && std::getenv("FRUGAL_LOG") == nullptr) log().set_level(spdlog::level::err);
  std::vector<std::string> sets = arguments.sets;
  if (!arguments.init_from.empty() &&
      std::any_of(sets.begin(), sets.end(),
                  [](const std::string& set) { return set.starts_with("model.weights="); }))
    throw ConfigError("",
                      "--init-from: expected no --set model.weights beside it, since both name the "
                      "weights to start from");
  if (!arguments.init_from.empty())
    sets.push_back("model.weights=" + Json(arguments.init_from).dump());
  Config config = load_config(arguments.config, sets);
  if (arguments.extend > 0)
    (config.train.steps > 0 ? config.train.steps : config.train.epochs) = arguments.extend;
  config.distributed.ranks = distributed::launch().ranks;
  if (arguments.resume) continue_encoding(config, arguments.out, arguments.data_changed);
  if (!arguments.resume || !has_checkpoint(arguments.out)) {
    check_starting_weights(config);  // their folder may say which network fits the data
    adopt_encoding(config);
  } else {
    check_weights_of_run(config, arguments.out);
  }
  resolve(config);
  catch_signals();
  TrainOptions options;
  if (config.distributed.ranks > 1) {
    options.ranks = distributed::from_environment({.timeout = config.distributed.timeout});
    check_same_run(*options.ranks, config);
    if (options.ranks->rank() > 0) log().set_level(spdlog::level::off);
  }
  options.out = arguments.out;
  options.resume = arguments.resume;
  options.extend = arguments.extend > 0;
  options.data_changed = arguments.data_changed;
  options.overwrite = arguments.overwrite;
  options.quiet = arguments.quiet;
  options.callbacks = arguments.callbacks;
  try {
    const Json summary = TrainingRun(config, options).run();
    if (options.ranks != nullptr && options.ranks->rank() > 0) return;
    if (arguments.json)
      print_json(summary);
    else
      std::printf("%s", summary_table({run_title(config)}, {summary}).c_str());
  } catch (const OutOfMemory& e) {
    throw OutOfMemory(explain(e, config), e.report);
  }
}

}  // namespace frugal::apps
