// Config: everything a run depends on. The keys, their ranges and their documentation are the one
// table in config_table.cpp, from which come parsing, errors, --print-config, --help-config and
// configs/schema.json.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/config/config_error.h"
#include "apps/json.h"
#include "compress/policies/choice.h"
#include "compress/policies/width_profile.h"
#include "core/value.h"
#include "optim/schedule.h"

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
  std::optional<std::string> weights;
  std::string head = "keep";
  int64_t neighbours = 200;  // for simsiam, byol and moco_v2
  // The other keys, which are the networks' own (core/option.h), without those that are null.
  options::Options options;

  std::optional<int64_t> integer(const char* key) const;  // a number of `options`
  std::string trunk() const;
};

struct DataConfig {
  std::string name = "fashion_mnist";
  std::optional<std::string> dir;
  int64_t batch_size = 128;
  std::optional<int64_t> test_batch_size;
  int64_t test_batch() const { return test_batch_size.value_or(batch_size); }
  bool drop_last = false;
  int64_t crop_padding = 0;
  bool flip = false;
  int64_t cutout = 0;
  std::string normalize = "auto";
  std::optional<std::vector<double>> mean, std;
  int64_t image_size = 224, channels = 3;
  std::optional<int64_t> resize;
  double crop_area = 0.08;
  std::string auto_augment = "none";
  std::optional<std::vector<double>> scale;
  std::optional<std::vector<int64_t>> mask_values;
  std::optional<std::vector<int64_t>> sides;
  int64_t longest_side = 1333;
  std::vector<double> color_jitter;
  double grayscale = 0, blur = 0, erasing = 0;
  double mixup = 0, cutmix = 0;
  // data.views
  double view_area = 0.2;
  bool view_flip = true;
  std::vector<double> view_jitter{0.4, 0.4, 0.4, 0.1};
  double view_jitter_share = 0.8;
  double view_grayscale = 0.2;
  std::vector<double> view_blur{0.5, 0.5}, view_solarize{0, 0};
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
  double clip_norm = 0;
  bool in_backward = false;
  options::Options own;  // the optimizer's own options that are given (optim/registry.h)
  // One of them, or its default: that of the optimizer `name` if it has the option, and else that
  // of the first one that has it.
  options::Value value(const std::string& key) const;
};

// The defaults of what policies read are those of their options, so that the library and the
// program keep activations alike.
struct CompressionConfig {
  static constexpr compress::FixedPolicyOptions kKeep{};
  static constexpr compress::ActnnOptions kActnn{};
  // After resolve(): PolicyKind::budget where there is a memory_budget.
  PolicyKind policy = PolicyKind::gact;
  std::string memory_budget;
  double bits = kKeep.bits;  // 0: raw; a fraction: adaptive widths of this average
  bool recipes = kKeep.recipes;
  bool entropy = false;
  std::string offload;
  double guard = 0;
  // compression.gact, which memory_budget reads, too
  bool gact_adaptive = false;
  int64_t adapt_interval = compress::Measuring().interval;
  int64_t adapt_samples = compress::Measuring().samples;
  double adapt_share = compress::Measuring().share;
  std::string gact_solver = "exact";
  // compression.actnn
  bool actnn_adaptive = kActnn.mixed;
  bool actnn_products_only = kActnn.products_only;
  bool actnn_by_sample = kActnn.by_sample, actnn_by_tensor = kActnn.by_tensor,
       actnn_use_gradient = kActnn.use_gradient;
  std::string actnn_norms = "inside", actnn_gradients = "averaged";
  int64_t actnn_interval = kActnn.interval;
  // compression.acgc
  double acgc_growth = compress::AcgcOptions().e;
  std::string acgc_rule = "derived";
  std::string acgc_count = "worst";
  std::string acgc_codec = compress::AcgcOptions().codec;
  int64_t acgc_interval = compress::AcgcOptions().interval;
  // compression.budget
  bool budget_recompute = false;
  // compression.advanced
  std::string signs = "codes";
  double chain = kKeep.chain;
  std::optional<int64_t> slice_bytes;
  int64_t min_elements = kKeep.min_elements;
  int64_t group_size = kKeep.group;
  std::string group_axis = "column";
  std::string rounding = "auto";
  int64_t offload_window = compress::OffloadOptions().window;
  int64_t guard_min_bits = 1;
  int64_t track_interval = 0;
  int64_t track_samples = 32;
  std::string profile;
  std::shared_ptr<const compress::WidthProfile> known_widths;  // in it, after resolve()
};

struct TrainConfig {
  int64_t epochs = 10;
  int64_t steps = 0;
  int64_t log_interval = 50;
  bool tensorboard = false;
  int64_t checkpoint_interval = 0;
  double checkpoint_seconds = 30;
  int64_t eval_interval = 1;
  int64_t patience = 0;
  int64_t keep_best = 1;
  std::string metric = "auto";
  // train.early_stop
  int64_t stop_patience = 0;
  double stop_min_delta = 0;
  std::string stop_metric = "loss";
  int64_t grad_norms = 0;
  double label_smoothing = 0;
  // Networks that give a class to each pixel read loss, focal_gamma and class_weights.
  std::string loss = "cross_entropy";
  double focal_gamma = 2;
  std::vector<double> class_weights;
  int64_t gradient_accumulation = 1;
  bool checkpointing = false;
  int64_t checkpointed_blocks = 0;
  std::vector<std::string> freeze;
  int64_t freeze_epochs = 0;
  bool freeze_statistics = true;
};

// Training on several processes.
struct DistributedConfig {
  std::string sharding = "none";
  int64_t bucket_bytes = int64_t{25} << 20;
  bool sync_batch_norm = true;
  int64_t compress_gradients = 0;  // bits
  double timeout = 600;            // seconds
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
};

struct Config {
  ModelConfig model;
  DataConfig data;
  OptimConfig optim;
  optim::ScheduleOptions schedule;
  CompressionConfig compression;
  TrainConfig train;
  DistributedConfig distributed;
  RunConfig run;  // the keys at the top level
};

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
// One "path=value". A path may go through a list, by the number of an entry:
// model.modules.3.dropout.p or model.modules[3].dropout.p.
void apply_set(Json& document, const std::string& assignment);
// Applies each of `sets`. If a compression.level is among them, the keys that levels set leave the
// document first. So the level counts, and what `sets` gives beside it.
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
