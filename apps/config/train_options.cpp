#include "apps/config/train_options.h"

#include <algorithm>

#include "apps/config/data/make_data.h"
#include "apps/config/make_choice.h"
#include "apps/config/make_model.h"
#include "apps/config/make_optimizer.h"
#include "apps/config/make_task.h"
#include "apps/config/resolve.h"
#include "apps/config/set_up_device.h"
#include "compress/policies/policy_kind.h"
#include "core/integers.h"
#include "train/evaluate.h"
#include "train/planning/planned_run.h"
#include "train/planning/planner.h"

namespace frugal::apps {
namespace {

// One of an epoch that no run reaches, for each step another.
std::function<Batch(int64_t)> batches_apart(const Config& config) {
  constexpr int64_t kEpochs = int64_t{1} << 40;
  return [config, source = std::shared_ptr<data::BatchSource>()](int64_t step) mutable {
    if (source == nullptr) source = make_batches(config, Split::train);
    source->seek({kEpochs + step, 0});
    return *source->next();
  };
}

}  // namespace

SensitivityOptions sensitivity_options(const Config& config) {
  return {compression_options(config, nullptr).choice.measuring};
}

std::optional<TrackingOptions> tracking_options(const Config& config) {
  const CompressionConfig& c = config.compression;
  if (c.track_interval == 0 && c.tracking.guard == 0) return std::nullopt;
  TrackingOptions options = c.tracking;
  if (c.track_interval > 0) options.interval = c.track_interval;
  options.batch = config.data.batch_size * config.train.gradient_accumulation;
  options.sgd = config.optim.name == "sgd" || config.optim.name == "sgd_8bit";
  options.momentum = options.sgd ? config.optim.value("momentum").number() : 0;
  options.label_smoothing = config.train.label_smoothing;
  options.checkpointed_blocks = checkpointed_blocks(config.train);
  options.seed = static_cast<uint64_t>(config.run.seed);
  if (family_of(config.model) == Family::graph) {
    options.batch = config.train.gradient_accumulation;
    options.other = batches_apart(config);
  }
  return options;
}

namespace {

// Without the ranks themselves.
RanksOptions ranks_options(const Config& config) {
  RanksOptions options = config.distributed;
  options.share_gradients = config.distributed.sharding == "gradients";
  options.buckets.first_bytes = std::min(options.buckets.first_bytes, options.buckets.bytes);
  return options;
}

// What data of a graph hold beside a batch: the labels as they were read, those of validation and
// test, and the masks of the three parts. Where batches are parts of the graph, which are copies,
// also the graph. GraphSAINT's have a weight for each node and edge, as its source has.
int64_t bytes_beside_graph(const Config& config, const BatchSpec& spec) {
  constexpr int64_t kRounding = 64;  // sizes of blocks are multiples of it
  const Batch whole = shape_of_batch(spec, 1, kMeta);
  const int64_t labels = whole.target.nbytes(), nodes = spec.sample[0];
  const std::string& sampler = config.data.sampler;
  int64_t bytes = 3 * (round_up(labels, kRounding) + round_up(nodes, kRounding));
  if (sampler == "full") return bytes;
  if (whole.input.defined()) bytes += round_up(whole.input.nbytes(), kRounding);
  int64_t edges = 0;
  for (const auto& [name, tensor] : spec.extras) {
    bytes += round_up(tensor.nbytes(), kRounding);
    if (name == "edge_index") edges = tensor.numel() / 2;
  }
  const int64_t weights = static_cast<int64_t>(sizeof(float)) * (nodes + edges);
  if (sampler == "neighbours")  // a GCN's have a weight for each edge, and loops
    bytes += weights + 2 * static_cast<int64_t>(sizeof(int64_t)) * nodes;
  else if (sampler != "clusters")
    bytes += 2 * weights;
  return bytes;
}

// Makes the largest batch of so many samples that the splits have, or the training samples where
// these splits have none.
std::function<Batch(int64_t, Device)> largest_of(const Config& config, const BatchSpec& spec,
                                                 const std::vector<Split>& splits) {
  return [config, spec, splits](int64_t samples, Device device) {
    int64_t columns = 0;
    for (const Split split : splits)
      columns = std::max(columns, columns_of_largest(config, split, samples));
    if (columns == 0) columns = columns_of_largest(config, Split::train, samples);
    BatchSpec largest = spec;
    if (columns > 0) largest.sample = {columns};
    return shape_of_batch(largest, samples, device);
  };
}

}  // namespace

EarlyStopOptions TrainConfig::stopping() const {
  if (patience == 0) return early_stop;
  return {.patience = patience, .unit = EarlyStopOptions::Unit::epochs};
}

MetaRun meta_run(const Config& config) {
  MetaRun run;
  const BatchSpec spec = batch_spec(config);
  run.make_model = [config, spec](Device device) { return make_model(config, spec, device); };
  run.make_optimizer = [config](Module& model) { return make_optimizer(config, model); };
  run.task = make_task(config);
  run.steps = [config] {
    const int64_t batches =
        config.train.steps > 0 ? 1 : make_batches(config, Split::train)->batches();
    return steps_of(config.train, batches);
  };
  run.ahead = [config](int64_t samples) { return samples_ahead(config, samples); };
  if (const auto tracked = tracking_options(config))
    run.tracked = [tracked](int64_t samples) {
      return tracked->other != nullptr ? samples : tracked->held(samples);
    };
  run.has_blocks = family_of(config.model) != Family::graph;
  run.gradient_accumulation = config.train.gradient_accumulation;
  run.label_smoothing = config.train.label_smoothing;
  run.clip_norm = config.train.clip_norm;
  run.in_backward = config.train.in_backward;
  run.on_cuda = Device::parse(config.run.device).type == DeviceType::cuda;
  run.counts_edges = !run.on_cuda;
  if (spec.kind == BatchSpec::Kind::sequences) {
    run.shape = largest_of(config, spec, {Split::train});
    run.evaluated = largest_of(config, spec, {Split::validation, Split::test});
  }
  if (spec.kind == BatchSpec::Kind::graph) run.data_bytes = bytes_beside_graph(config, spec);
  run.ranks = ranks_options(config);
  run.ranks.communicator = distributed::imagined(config.distributed.ranks);
  return run;
}

bool counts_kernels(const Config& config) {
  if (config.run.on_cuda()) return false;
  return config.run.device != "meta" || config.run.threads > 0;
}

Config share_of_rank(Config config) {
  const int64_t ranks = config.distributed.ranks, test_batch = config.data.test_batch();
  if (ranks > 1) config.distributed.whole_batch = config.data.batch_size;
  config.data.batch_size = ceil_div(config.data.batch_size, ranks);
  config.data.test_batch_size = ceil_div(test_batch, ranks);
  return config;
}

Config largest_phase(Config config) {
  const TrainConfig now = config.train;
  const bool thaws = now.freeze_epochs > 0 && (now.steps > 0 || now.epochs > now.freeze_epochs);
  if (!thaws || now.freeze.empty() || !config.compression.memory_budget.empty()) return config;
  const TrainConfig defaults;
  config.train.freeze = defaults.freeze;
  config.train.freeze_epochs = defaults.freeze_epochs;
  config.train.freezing = defaults.freezing;
  return config;
}

CompressionOptions compression_options(const Config& config, std::shared_ptr<Planner> planner) {
  CompressionOptions options;
  options.choice = make_choice(config.compression);
  options.choice.measuring.batch = config.data.batch_size;
  options.tracking = tracking_options(config);
  options.planner = std::move(planner);
  return options;
}

// An epoch of a whole graph has one batch, and a step takes no more batches than an epoch has.
int64_t batches_of_step(const Config& config) {
  const bool whole = family_of(config.model) == Family::graph && config.data.sampler == "full";
  return whole ? 1 : config.train.gradient_accumulation;
}

UpdateTime update_time(const Config& config) {
  TrainerOptions options = config.train;
  options.checkpointed_blocks = checkpointed_blocks(config.train);
  options.gradient_accumulation = batches_of_step(config);
  UpdateTime time = train::update_time(options, Device::parse(config.run.device));
  time.ranks = config.distributed.ranks;
  return time;
}

TrainerOptions trainer_options(const Config& config, std::shared_ptr<Planner> planner) {
  TrainerOptions options = config.train;
  options.checkpointed_blocks = checkpointed_blocks(config.train);
  options.early_stop = config.train.stopping();
  options.seed = static_cast<uint64_t>(config.run.seed);
  options.cuda_graphs = config.run.cuda_graphs;
  options.spec = batch_spec(config);
  options.compression = compression_options(config, std::move(planner));
  options.ranks = ranks_options(config);
  return options;
}

}  // namespace frugal::apps
