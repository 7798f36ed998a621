// Config: everything a run depends on. The keys, their ranges and their documentation are the one
// table in config_table.cpp, from which come parsing, errors, --print-config, --help-config and
// configs/schema.json.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/keys/config_error.h"
#include "apps/json.h"
#include "compress/policies/choice.h"
#include "compress/policies/policy_kind.h"
#include "compress/policies/width_profile.h"
#include "core/value.h"
#include "data/image/changes.h"
#include "models/adapters/adapters.h"
#include "models/freeze.h"
#include "models/pack.h"
#include "optim/schedule.h"
#include "train/tasks/make_task.h"
#include "train/trainer.h"

namespace frugal::apps {

using compress::PolicyKind;
struct RunEncoding;  // run_encoding.h
class OpenedData;    // open_data.h
std::shared_ptr<OpenedData> nothing_opened();

// Optional values are null in JSON: "from the data".
struct ModelConfig {
  std::string name = "resnet20";
  bool is_named = true;  // no key: whether the configuration has a model.name
  std::optional<int64_t> num_classes, in_channels, vocab_size;
  std::optional<std::string> weights, adapter;
  std::string head = "keep";
  models::PackOptions packing;  // how weights that do not train are held
  // The other keys, which are the networks' own (core/option.h), without those that are null.
  by_name::Options options;

  std::optional<int64_t> integer(const char* key) const;  // a number of `options`
  std::string trunk() const;
};

struct DataConfig : data::ChangeOptions {
  std::string name = "fashion_mnist";
  std::optional<std::string> dir;
  int64_t batch_size = 128;
  std::optional<int64_t> test_batch_size;
  int64_t test_batch() const { return test_batch_size.value_or(batch_size); }
  bool drop_last = false;
  std::string normalize = "auto";
  std::optional<std::vector<double>> mean, std;
  int64_t image_size = 224, channels = 3;
  std::optional<int64_t> resize;
  double crop_area = 0.08;
  std::optional<std::vector<double>> scale;
  std::optional<std::vector<int64_t>> mask_values;
  std::optional<std::vector<int64_t>> sides;
  int64_t longest_side = 1333;
  double mixup = 0, cutmix = 0;
  data::TwoViewOptions views;
  bool skip_bad = false;
  std::string exif = "auto";
  bool several_labels = false;
  std::optional<std::string> class_names;
  std::string layout = "nhwc";
  std::optional<std::string> target, path_column;
  std::vector<std::string> drop;
  std::string encoding = "utf-8";
  std::string task = "auto", categories = "one_hot", missing = "error";
  std::string text = "text";
  std::optional<std::string> second_text;
  int64_t workers = 1;
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  std::optional<std::vector<int64_t>> shape;
  std::optional<int64_t> classes;
  std::optional<std::string> vocabulary;
  std::string tokenizer = "characters";
  int64_t max_length = 128;
  bool answers_only = true, truncate = false, join = false;
  double validation = 0.1;
  std::optional<std::vector<double>> split;
  bool sparse_features = true;
  std::string sampler = "full";
  int64_t sampler_batches = 50;
  int64_t walk_length = 2;
  std::vector<int64_t> fan_outs{10, 10};
  int64_t clusters = 50;
  int64_t nodes = 10000, edges = 50000, features = 128;
  // This is no key. What a run knows of its data, where its folder is used: it then decides how
  // data become batches. null: the data decide.
  std::shared_ptr<const RunEncoding> known;
  // This is no key. What this configuration and its copies have read of the data.
  std::shared_ptr<OpenedData> opened = nothing_opened();

  bool operator==(const DataConfig&) const = default;
};

struct OptimConfig {
  std::string name = "sgd";
  double lr = 0.1;
  double weight_decay = 1e-4;
  std::vector<std::string> weight_decay_of;
  std::vector<std::string> lr_of;
  double layer_decay = 1;
  double ema = 0;
  bool no_decay_norms = true;
  by_name::Options own;  // the optimizer's own options that are given (optim/registry.h)
  // The value of the option `key`. Where `own` lacks it, this is the default of the optimizer
  // `name`. Where that one has no such option, it is the default of the first optimizer that does.
  by_name::Value value(const std::string& key) const;
  // What is read for every optimizer (make_optimizer.cpp), without `name`.
  static std::vector<by_name::Option<OptimConfig>> list();
};

// The options of the policies, and what is beside them. All policies share FixedPolicyOptions.
struct CompressionConfig : compress::FixedPolicyOptions {
  // After resolve(): PolicyKind::budget where there is a memory_budget.
  PolicyKind policy = PolicyKind::gact;
  std::string memory_budget;
  double bits = compress::FixedPolicyOptions().bits;  // a fraction: adaptive widths on average
  bool entropy = compress::Choice().entropy;
  std::string offload;
  bool gact_adaptive = false;
  compress::AdaptiveOptions gact;
  compress::Measuring measuring;  // compression.gact, which memory_budget reads, too
  compress::ActnnOptions actnn;
  compress::AcgcOptions acgc;
  bool budget_recompute = false;
  compress::OffloadOptions file;  // without its directory
  train::TrackingOptions tracking;
  int64_t track_interval = 0;  // 0: none, or with a guard that of `tracking`
  std::string profile;
  std::shared_ptr<const compress::WidthProfile> known_widths;  // in it, after resolve()
};

// The trainer's options, and what is beside them. Members of TrainerOptions that have no key are
// set by trainer_options() (train_options.h).
struct TrainConfig : train::TrainerOptions {
  bool tensorboard = false;
  std::string metric = "auto";
  int64_t patience = 0;  // the patience of early_stop in epochs, without a lower validation loss
  train::TaskOptions of_task;
  bool checkpointing = false;
  int64_t first_blocks = 0;  // checkpointed_blocks(): 0: all
  std::vector<std::string> freeze;
  FreezeOptions freezing;

  train::EarlyStopOptions stopping() const;  // early_stop, or what `patience` stands for
};

// Training on several processes: what ranks do together, and what is beside it.
struct DistributedConfig : train::RanksOptions {
  std::string sharding = "none";
  double timeout = distributed::Options().timeout;  // seconds
  // No keys set `ranks` and `whole_batch`. mpirun or `plan --ranks` says the number of ranks.
  int ranks = 1;
  // The batch of all ranks, if data.batch_size is the batch of one. 0: data.batch_size is that of
  // all ranks.
  int64_t whole_batch = 0;
};

struct RunConfig {
  int64_t seed = 0;
  std::string device = "cpu";  // cpu, meta, cuda, or one of several GPUs, such as cuda:1
  std::string precision = "f32";
  bool cuda_graphs = false;
  bool deterministic = true;
  int64_t workspace_limit = int64_t{512} << 20;  // bytes
  int64_t threads = 0;
  int64_t memory_limit = 0;  // bytes
  bool on_cuda() const { return device.starts_with("cuda"); }
  bool has_bf16() const { return precision.starts_with("bf16"); }  // activations
  // Without seed and device.
  static std::vector<by_name::Option<RunConfig>> list();
};

// Keys that a document has from a file.
struct KeysOfFile {
  std::string file;
  std::vector<std::string> paths;  // "model.heads"
};

struct Config {
  ModelConfig model;
  models::AdapterOptions adapter;
  DataConfig data;
  OptimConfig optim;
  optim::ScheduleOptions schedule;
  CompressionConfig compression;
  TrainConfig train;
  DistributedConfig distributed;
  RunConfig run;                  // the keys at the top level
  std::vector<KeysOfFile> files;  // for messages
};

// The error of a key, with the file that the key is from, if it is from one.
ConfigError with_file(const std::vector<KeysOfFile>& files, const ConfigError& error);
// Calls `f`. Its errors name the files that keys are from.
template <class F>
auto naming_files(const Config& config, const F& f) {
  try {
    return f();
  } catch (const ConfigError& error) {
    throw with_file(config.files, error);
  }
}

// Errors (all ConfigError, with the path): unknown key, naming the nearest valid one; wrong type;
// out of range; values that contradict each other.
Config parse_config(const Json& document);

// The key that somebody may mean who writes `name`, such as epochs or learning_rate; empty: none.
std::string key_meant(const std::string& name);

// The file, then each "path=value" of `sets`: value is JSON, or else a string.
// Errors: as above, a missing file, a folder, text that is not JSON (with its position), a key that
// nothing reads (check_set_keys).
// `chosen`: a section whose keys may be there without a reader, as the command chooses policies and
// widths of its own ("compression").
Config load_config(const std::string& path, const std::vector<std::string>& sets = {},
                   const std::string& chosen = {});
// load_config() of a document in the place of a file.
Config load_document(Json document, const std::vector<std::string>& sets = {},
                     const std::string& chosen = {});
// Keys that nothing reads get their defaults, so what is written of it is a configuration again.
// The config.json of a run is taken with such keys, too.
void drop_unread(Config& config, const std::string& chosen = {});
Json read_json(const std::string& path);
// "~" and "~/x" below the home folder, as shells have it at the beginning of a word. They leave it
// as it is behind "=", and in a file. Other paths as they are.
std::string at_home(const std::string& path);
// One "path=value". A path may go through a list, by the number of an entry:
// model.modules.3.dropout.p or model.modules[3].dropout.p.
void apply_set(Json& document, const std::string& assignment);
// Applies each of `sets`. If a compression.level is among them, the keys that levels set leave the
// document first. So the level counts, and what `sets` gives beside it. If model.weights is among
// them and names a folder of the hub, the keys of the network leave the document in the same way.
void apply_sets(Json& document, const std::vector<std::string>& sets);

// Errors: a key of `sets` that nothing reads in this run, such as data.split with images.
// load_config() checks the keys of the file (refused_keys() in config_table.h).
void check_set_keys(const Config& config, const std::vector<std::string>& sets,
                    const std::string& chosen = {});

// Every key with its value; parse_config(to_json(c)) gives c again.
Json to_json(const Config& config);

Json config_schema();       // JSON Schema, draft 7
std::string config_help();  // every key with type, default and documentation, for people

// The configuration in text form whose hash names a run, and its SHA-256 in hexadecimal.
std::string config_text(const Config& config);
std::string config_sha256(const Config& config);

// The path of the first key that differs and matters to the results; empty: none. Where the data
// lies, threads, workers, limits and how often checkpoints are written do not.
std::string first_difference(const Config& a, const Config& b);

}  // namespace frugal::apps
