// What a run folder keeps so that its network can be used without its data, and the way back from
// the folder to the network (train::load).
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "train/run/model.h"
#include "train/run/run_folder.h"

namespace frugal::apps {

// Writes input.json and the tokenizer's files. Their content follows from the configuration.
void write_input_files(RunFolder& folder, const Config& config, const BatchSpec& spec);

struct StoredRun {
  std::string folder;
  Config config;
  train::ModelDescription description;
};

// Whether commands take `path` for a run rather than for a configuration.
bool is_folder(const std::string& path);
// Errors: a folder without config.json; `sets` as in load_config(); a damaged file. Runs of earlier
// versions have no input.json: their data must be there.
StoredRun read_run(const std::string& folder, const std::vector<std::string>& sets = {});

// The file of "best" or "last" weights, or `which` itself. Without best weights the last ones are
// the best. Errors: a run that has written none.
std::string weights_file(const StoredRun& run, const std::string& which);

// Errors: those of the file.
std::shared_ptr<Module> stored_network(const StoredRun& run, const std::string& weights,
                                       Device device);

}  // namespace frugal::apps
