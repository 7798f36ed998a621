// What a run folder keeps so that its network can be used without its data, and the way back from
// the folder to the network (train::load).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/config/run_encoding.h"
#include "data/formats/safetensors_shards.h"
#include "models/state.h"
#include "train/run/model.h"
#include "train/run/run_folder.h"

namespace frugal::apps {

// What a run folder has from its start beside config.json, by name: input.json, the tokenizer's
// files, those of describing_files(), and base.json where `leaves_out_frozen`. Only those that are
// `wanted`.
std::map<std::string, std::string> starting_files(
    const Config& config, const BatchSpec& spec, bool leaves_out_frozen,
    const std::function<bool(const std::string& name)>& wanted);

// What the folder of a run holds of its data, or that without the tokenizer. Runs of earlier
// versions have less. Errors: a damaged file.
std::shared_ptr<RunEncoding> read_encoding(const std::string& folder, const Config& config,
                                           bool with_tokenizer = true);

struct StoredRun {
  std::string folder;
  Config config;
  train::ModelDescription description;
};

// Whether commands take `path` for a run rather than for a configuration.
bool is_folder(const std::string& path);
// Errors: a folder without config.json; `sets` as in load_config(), or with another encoding of the
// data than the run's; a damaged file. Runs of earlier versions have no input.json: their data must
// be there.
StoredRun read_run(const std::string& folder, const std::vector<std::string>& sets = {});

// What turns lines of text into ids for a run with a tokenizer. A template and the end of a text
// are those of the tokenizer's folder, if it has any.
data::SampleEncoder sample_encoder(const StoredRun& run);

// Fills run.config for a command that reads the run's data, which may have changed since: then it
// warns. `sets` are those of read_run(): other data than the run's have parts of their own.
// Errors: those of resolve().
void resolve_with_data(StoredRun& run, const std::vector<std::string>& sets);

// Has a run in this folder begun, so that it can be resumed?
bool has_checkpoint(const std::string& folder);
// For a run that goes on: takes the encoding from its folder. Errors: data that have changed,
// unless `changed` says so.
void continue_encoding(Config& config, const std::string& folder, bool changed);
// For a new run from the weights of another one (model.weights): its data are encoded as that run
// encoded its own, where they are of one kind and the last layer is kept. A warning says why not.
void adopt_encoding(Config& config);
// data.json of `folder` with the digest of the data as they are now; empty: it has no such file.
std::string data_json_now(const Config& config, const std::string& folder);

// Errors (ConfigError at `path`): weights that are not there.
void check_weights_exist(const std::string& weights, const std::string& path);
// Errors (ConfigError at `path`): weights that are not there, or a folder without any.
void check_weights(const std::string& weights, const std::string& path);
// The file of "best" or "last" weights, or `which` itself. Without best weights the last ones are
// the best. Errors: those of check_weights(); a run that has written none.
std::string weights_file(const StoredRun& run, const std::string& which);

// The frozen weights that a run with adapters starts from, model.weights.
// Errors: those of open_weights(); weights of adapters alone.
data::SafetensorsShards open_base(const Config& config);
// base.json: where these weights lie, and a digest of their files.
std::string base_json(const Config& config);
bool has_base(const std::string& folder);  // Does the folder of a run have base.json?
// Checks a run that goes on. It reads its own files of weights, but the configuration may leave it
// to model.weights to say what the network is.
// Errors (ConfigError): such weights are not there.
void check_weights_of_run(const Config& config, const std::string& folder);
// open_base() for a run that has begun. Where model.weights is gone, the place in base.json counts.
// A folder that has lost base.json gets a warning. Errors: those of open_base(); other weights than
// those that the run began with.
data::SafetensorsShards open_base_again(const std::string& folder, const Config& config);
// Fills the network but for its adapters, which then change no output.
// Errors: those of load_weights().
models::StateNotes load_base(Module& network, const data::SafetensorsShards& base,
                             const Config& config);

// Calls `load`. If it finds weights of another network (models::OtherNetwork), the error becomes a
// ConfigError at `path`, which names the weights or the network.
template <class F>
auto with_named_weights(const std::string& path, const F& load) {
  try {
    return load();
  } catch (const models::OtherNetwork& e) {
    throw ConfigError(path, e.what());
  }
}

// The network of a run with its weights. Where these hold no adapters and the configuration has
// some, model.adapter gives them.
// Errors: those of the files; ConfigError for weights of another network, if the command names
// them, or changes a key of the network.
std::shared_ptr<Module> stored_network(const StoredRun& run, const std::string& weights,
                                       Device device);

}  // namespace frugal::apps
