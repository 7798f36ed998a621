// What a configuration's compression adds to the gradient of its network: see
// train/noise/gradient_study.h.
#include <cstdio>

#include "apps/bench/gradient_bench.h"
#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/cli/report.h"
#include "apps/config/keys/config_error.h"
#include "apps/config/make_choice.h"
#include "apps/config/resolve.h"

namespace frugal::apps {
namespace {

using train::GradientErrors;
using train::LayeredErrors;
using train::RoundedLayer;

// All over the unit of the whole gradient, so that layers add up.
Json layers_json(const GradientLayers& layers, const LayeredErrors& found,
                 const std::vector<RoundedLayer>& sources) {
  const double unit = found.unit();
  Json all = Json::array();
  for (size_t i = 0; i < sources.size(); ++i) {
    Json into = Json::object();
    for (size_t k = 0; k < sources.size(); ++k) into[layers.names[k]] = sources[i].into[k] / unit;
    const GradientErrors& own = found.layers[i];
    all.push_back({{"layer", layers.names[i]},
                   {"packed_tensors", sources[i].packed},
                   {"minibatch_variance", estimate_json(own.minibatch, unit)},
                   {"variance", estimate_json(own.rounding, unit)},
                   {"squared_bias", estimate_json(own.squared_bias, unit)},
                   {"from", estimate_json(sources[i].from, unit)},
                   {"into", into}});
  }
  return all;
}

void print_layers(const GradientLayers& layers, const LayeredErrors& found,
                  const std::vector<RoundedLayer>& sources) {
  const double unit = found.unit();
  std::vector<std::vector<std::string>> lines = {
      {"layer", "its gradient's variance", "its squared bias", "packed tensors", "what they add"}};
  double own = 0, bias = 0, from = 0;
  int64_t tensors = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const GradientErrors& of = found.layers[i];
    lines.push_back({layers.names[i], estimate_text(of.rounding, unit),
                     estimate_text(of.squared_bias, unit), std::to_string(sources[i].packed),
                     sources[i].from.value == 0 ? "" : estimate_text(sources[i].from, unit)});
    own += of.rounding.value;
    bias += of.squared_bias.value;
    from += sources[i].from.value;
    tensors += sources[i].packed;
  }
  lines.push_back({"sum", fmt::format("{:.4f}", own / unit), fmt::format("{:.4f}", bias / unit),
                   std::to_string(tensors), fmt::format("{:.4f}", from / unit)});
  std::printf("\n%s", table(lines).c_str());
  std::printf(
      "what they add: to the variance of the whole gradient; by theorem 3 of ActNN this adds up to "
      "the whole. With recipes it is more, where rebuilt values are rounded again\n");
}

}  // namespace

void bench_variance(const BenchArguments& arguments) {
  Config config = load_config(arguments.config, arguments.sets);
  resolve(config);
  if (arguments.layers > 0 && config.train.checkpointing &&
      make_choice(config.compression).keep().pack_recomputed)
    throw ConfigError("compression.advanced.recomputed",
                      "expected whole with --layers and train.checkpointing: what a packed block "
                      "saves is not known by its layer, got packed");
  GradientBench bench(config);
  bench.train(arguments.train_steps);
  bench.begin(arguments.batches, arguments.layers);
  const auto policy =
      make_policy(make_choice(config.compression), kCpu, static_cast<uint64_t>(config.run.seed));
  bench.let_learn(*policy, config);
  LayeredErrors found = bench.measure(*policy, arguments.draws);
  const int64_t bytes = found.memory.saved();
  const double unit = found.unit();
  const double less =
      static_cast<double>(bench.whole_memory().saved()) / static_cast<double>(bytes);
  std::vector<RoundedLayer> sources;
  if (arguments.layers > 0) {
    sources = bench.measure_by_source(*policy, arguments.draws);
    found.layers.resize(sources.size());
  }
  if (arguments.json) {
    Json document = {{"model", config.model.name},
                     {"batch_size", config.data.batch_size},
                     {"train_steps", arguments.train_steps},
                     {"batches", arguments.batches},
                     {"draws", arguments.draws},
                     {"unit", found.unit_name()},
                     {"minibatch_variance", found.minibatch.value},
                     {"minibatch_variance_error", found.minibatch.error},
                     {"squared_gradient", found.square},
                     {"activation_bytes", bytes},
                     {"L0_activations_over_these", less},
                     {"variance", estimate_json(found.rounding, unit)},
                     {"squared_bias", estimate_json(found.squared_bias, unit)}};
    if (!sources.empty()) document["layers"] = layers_json(bench.layers(), found, sources);
    print_json(document);
    return;
  }
  std::printf(
      "%s", table({{"", "activations", "L0's over these", "variance", "squared bias"},
                   {run_title(config), readable_bytes(bytes), fmt::format("{:.2f}x", less),
                    estimate_text(found.rounding, unit), estimate_text(found.squared_bias, unit)}})
                .c_str());
  std::printf(
      "%s\n",
      setting_text(arguments.train_steps, arguments.draws, arguments.batches, found).c_str());
  if (!sources.empty()) print_layers(bench.layers(), found, sources);
}

}  // namespace frugal::apps
