#include "apps/config/starting_weights.h"

#include "apps/config/adapter_files.h"
#include "apps/config/stored_run.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "train/run/weights.h"

namespace frugal::apps {

void check_starting_weights(const Config& config) {
  if (config.model.weights) check_weights_exist(*config.model.weights, "model.weights");
}

std::string load_starting_weights(Module& network, const Config& config) {
  std::string read;
  if (config.model.weights) {
    const auto weights = open_base(config);
    const std::string& path = *config.model.weights;
    read =
        describe(weights, with_named_weights("model.weights", [&] {
                   try {
                     return load_base(network, weights, config);
                   } catch (const models::OtherNetwork& e) {
                     if (!data::is_folder(path) || data::is_file(path + "/config.json")) throw;
                     throw models::OtherNetwork(fmt::format(
                         "{}\n  {} has no config.json, which says what network these weights are "
                         "of; model.* says it instead",
                         e.what(), in_quotes(path)));
                   }
                 }));
  }
  if (config.model.adapter) {
    if (!config.model.weights)
      throw ConfigError("model.adapter",
                        fmt::format("expected model.weights beside it, which name the weights that "
                                    "{} was trained beside, got none",
                                    in_quotes(*config.model.adapter)));
    load_adapter(network, config, *config.model.adapter);
    read +=
        fmt::format("{}adapter of {}", read.empty() ? "" : "\n", printable(*config.model.adapter));
  }
  return read;
}

}  // namespace frugal::apps
