#include "apps/config_table.h"

#include "apps/makers.h"
#include "compress/error_bounded.h"

namespace frugal::apps {
namespace {

// ---- values to and from JSON
template <class T>
struct Convert {
  static Json out(const T& value) { return value; }
  static void in(T& value, const Json& json) { value = json.get<T>(); }
};
template <class T>
struct Convert<std::optional<T>> {
  static Json out(const std::optional<T>& value) { return value ? Json(*value) : Json(nullptr); }
  static void in(std::optional<T>& value, const Json& json) {
    value = json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
  }
};

template <class S, class T>
Field field(S Config::*section, const char* key, T S::*member, Json schema, const char* doc) {
  Field f;
  f.key = key;
  f.schema = std::move(schema);
  f.doc = doc;
  f.get = [=](const Config& c) { return Convert<T>::out(c.*section.*member); };
  f.set = [=](Config& c, const Json& json) { Convert<T>::in(c.*section.*member, json); };
  return f;
}

Field without_effect(Field f) {
  f.affects_results = false;
  return f;
}

// ---- what values may be
Json boolean() { return {{"type", "boolean"}}; }
Json text() { return {{"type", "string"}}; }
Json choice(const std::vector<std::string>& names) { return {{"type", "string"}, {"enum", names}}; }
Json integer(int64_t lo, int64_t hi) {
  return {{"type", "integer"}, {"minimum", lo}, {"maximum", hi}};
}
Json group_size() {
  Json schema = integer(8, 1 << 16);
  schema["multipleOf"] = 8;
  return schema;
}
Json number(double lo, double hi) { return {{"type", "number"}, {"minimum", lo}, {"maximum", hi}}; }
Json positive(double hi) {
  return {{"type", "number"}, {"exclusiveMinimum", 0.0}, {"maximum", hi}};
}
Json below(double lo, double hi) {
  return {{"type", "number"}, {"minimum", lo}, {"exclusiveMaximum", hi}};
}
Json list(Json items, int64_t lo, int64_t hi) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", lo}, {"maxItems", hi}};
}
Json or_null(Json schema) {
  schema["type"] = Json::array({schema["type"], "null"});
  return schema;
}

// Bytes, as a number or as "2 GiB".
template <class S>
Field bytes_field(S Config::*section, const char* key, int64_t S::*member, const char* doc,
                  const std::string& path) {
  Field f =
      field(section, key, member,
            {{"type", {"integer", "string"}}, {"minimum", 0}, {"pattern", kBytesPattern}}, doc);
  f.set = [=](Config& c, const Json& json) {
    c.*section.*member =
        json.is_string() ? parse_bytes(json.get<std::string>(), path) : json.get<int64_t>();
  };
  return f;
}

constexpr int64_t kMany = int64_t{1} << 40;
constexpr int64_t kBatch = 1 << 20;

// ---- the table
Section model() {
  constexpr auto s = &Config::model;
  using C = ModelConfig;
  return {"model",
          "The network.",
          {field(s, "name", &C::name, choice(model_names()), "Which network."),
           field(s, "num_classes", &C::num_classes, or_null(integer(1, 1 << 20)),
                 "Outputs; null: as many as the data has classes."),
           field(s, "in_channels", &C::in_channels, or_null(integer(1, 4096)),
                 "Input channels; null: as many as the images have."),
           field(s, "shortcut", &C::shortcut, choice({"A", "B"}),
                 "CIFAR ResNets: A pads with zero channels, B projects."),
           field(s, "stem", &C::stem, choice({"imagenet", "cifar"}),
                 "resnet18 and larger: 7x7 stride 2 and a pool, or 3x3 stride 1 for small images."),
           field(s, "hidden", &C::hidden, list(integer(1, 1 << 20), 0, 64),
                 "mlp: widths of the hidden layers."),
           field(s, "dropout", &C::dropout, or_null(below(0, 1)),
                 "Probability of dropping a hidden unit, where the network drops any; null: the "
                 "network's own."),
           field(s, "attention_dropout", &C::attention_dropout, or_null(below(0, 1)),
                 "Transformers and gat: the same of attention; null: the network's own."),
           field(s, "input_dropout", &C::input_dropout, or_null(below(0, 1)),
                 "gcn, sage and gat: the same of the features; null: the network's own."),
           field(s, "layers", &C::layers, or_null(integer(1, 4096)),
                 "Transformers and graph networks: instead of the named network's layers."),
           field(s, "width", &C::width, or_null(integer(1, 1 << 20)),
                 "The same of hidden units, which gat's heads share out."),
           field(s, "heads", &C::heads, or_null(integer(1, 4096)), "The same of heads."),
           field(s, "feed_forward", &C::feed_forward, or_null(integer(1, 1 << 20)),
                 "Transformers: units between the two layers of each block's second half; null: "
                 "4 times the width."),
           field(s, "max_positions", &C::max_positions, or_null(integer(1, 1 << 20)),
                 "Transformers: the longest sequence; null: the network's own."),
           field(s, "vocab_size", &C::vocab_size, or_null(integer(1, 1 << 24)),
                 "Transformers: token ids are below; null: as many as the data has."),
           field(s, "batch_norm", &C::batch_norm, boolean(),
                 "Graph networks: batch norm after each hidden layer."),
           field(s, "residual", &C::residual, boolean(),
                 "Graph networks: add a layer's input to its output, where widths agree."),
           field(s, "jump", &C::jump, choice({"none", "cat", "max"}),
                 "Graph networks: jumping knowledge, the outputs of all layers side by side or "
                 "their maximum."),
           field(s, "alpha", &C::alpha, or_null(number(0, 1)),
                 "gcnii: share of the first layer's output in every layer; null: 0.1."),
           field(s, "theta", &C::theta, or_null(positive(100)),
                 "gcnii: weights of layer l count log(theta / l + 1); null: 0.5."),
           field(s, "aggregation", &C::aggregation, choice({"mean", "max"}),
                 "sage: what it takes of a node's neighbours."),
           field(s, "out_heads", &C::out_heads, or_null(integer(1, 4096)),
                 "gat: heads of the last layer, which averages them; null: 1."),
           field(s, "slope", &C::slope, or_null(number(0, 1)),
                 "gat: of the leaky relu of its scores; null: 0.2.")}};
}

Section data() {
  constexpr auto s = &Config::data;
  using C = DataConfig;
  return {
      "data",
      "The data.",
      {field(s, "name", &C::name, choice(dataset_names()),
             "Which dataset; random: noise, made in memory."),
       without_effect(field(s, "dir", &C::dir, or_null(text()),
                            "Folder of the files; null: $FRUGAL_DATA, or for fashion_mnist "
                            "/usr/share/datasets/fashion-mnist.")),
       field(s, "batch_size", &C::batch_size, integer(1, kBatch),
             "Samples in a training batch; of a whole graph, all."),
       field(s, "test_batch_size", &C::test_batch_size, integer(1, kBatch),
             "Samples in a test batch."),
       field(s, "crop_padding", &C::crop_padding, integer(0, 1024),
             "Augmentation: random crop of the image padded by so many pixels; 0: off."),
       field(s, "flip", &C::flip, boolean(), "Augmentation: mirror half of the images."),
       field(s, "cutout", &C::cutout, integer(0, 4096),
             "Augmentation: blank a square of this side; 0: off."),
       field(s, "normalize", &C::normalize, boolean(),
             "Subtract the dataset's mean and divide by its standard deviation, per channel."),
       without_effect(field(s, "workers", &C::workers, integer(0, 256),
                            "Threads that prepare batches ahead; 0: none.")),
       field(s, "train_samples", &C::train_samples, integer(0, kMany),
             "Use only the first so many training samples; 0: all."),
       field(s, "test_samples", &C::test_samples, integer(0, kMany),
             "Use only the first so many test samples; 0: all."),
       field(s, "shape", &C::shape, or_null(list(integer(1, 1 << 16), 3, 3)),
             "random: [height, width, channels]; null: [32, 32, 3]."),
       field(s, "classes", &C::classes, or_null(integer(1, 1 << 20)),
             "random, random_tokens, random_graph: number of classes; null: 10, 2, 40."),
       without_effect(field(s, "vocabulary", &C::vocabulary, or_null(text()),
                            "Text: the tokenizer's vocabulary (vocab.txt; byte_bpe: the folder of "
                            "vocab.json and merges.txt); null: "
                            "text/bert-base-uncased-vocab.txt in $FRUGAL_DATA.")),
       field(s, "tokenizer", &C::tokenizer, choice({"characters", "wordpiece", "byte_bpe"}),
             "text: what tokens are; GLUE takes wordpiece."),
       field(s, "max_length", &C::max_length, integer(2, 1 << 20),
             "Text: tokens of a sequence, at most."),
       field(s, "validation", &C::validation, positive(0.9),
             "text: share at the end that is tested on."),
       field(s, "split", &C::split, or_null(list(positive(1), 2, 2)),
             "Graphs: shares of the nodes to train and to validate on, drawn with the seed; the "
             "rest is tested on. null: the distribution's own, or [0.6, 0.2]."),
       field(s, "sparse_features", &C::sparse_features, boolean(),
             "Graphs: keep features of which most are 0 as a sparse matrix."),
       field(s, "sampler", &C::sampler,
             choice({"full", "random_walk", "node", "edge", "neighbours", "clusters"}),
             "Graphs: the whole graph at once, or subgraphs: GraphSAINT's three, sampled "
             "neighbours of batch_size nodes, batch_size of the clusters."),
       field(s, "sampler_batches", &C::sampler_batches, integer(1, kMany),
             "GraphSAINT: subgraphs in an epoch, of about batch_size roots, nodes or edges."),
       field(s, "walk_length", &C::walk_length, integer(1, 1024), "random_walk: its steps."),
       field(s, "fan_outs", &C::fan_outs, list(integer(1, 1 << 20), 1, 16),
             "neighbours: how many of each node, layer by layer."),
       field(s, "clusters", &C::clusters, integer(1, 1 << 20), "clusters: how many there are."),
       field(s, "nodes", &C::nodes, integer(1, 1 << 26), "random_graph: its nodes."),
       field(s, "edges", &C::edges, integer(0, 1 << 26),
             "random_graph: its undirected edges."),
       field(s, "features", &C::features, integer(1, 1 << 20), "random_graph: of each node.")}};
}

Section optim() {
  constexpr auto s = &Config::optim;
  using C = OptimConfig;
  return {"optim",
          "The optimizer.",
          {field(s, "name", &C::name, choice(optimizer_names()), "Which optimizer."),
           field(s, "lr", &C::lr, positive(1e4), "Learning rate: the highest of the schedule."),
           field(s, "momentum", &C::momentum, below(0, 1), "sgd: momentum."),
           field(s, "nesterov", &C::nesterov, boolean(), "sgd: Nesterov's momentum."),
           field(s, "beta1", &C::beta1, below(0, 1), "adam and its kin: decay of the mean."),
           field(s, "beta2", &C::beta2, below(0, 1), "The same of the mean square."),
           field(s, "eps", &C::eps, positive(1), "The same: added to the root of the mean square."),
           field(s, "ema", &C::ema, below(0, 1),
                 "Evaluate the mean of the weights over time, with this decay; 0: off. "
                 "checkpoint/last_average.safetensors holds it, last.safetensors the weights "
                 "themselves."),
           field(s, "weight_decay", &C::weight_decay, number(0, 1e3), "L2 penalty."),
           field(s, "weight_decay_of", &C::weight_decay_of, list(text(), 0, 64),
                 "Another weight decay for parameters by the beginning of their names, such as "
                 "\"convs.=0.01\"; the first that fits counts."),
           field(s, "no_decay_norms", &C::no_decay_norms, boolean(),
                 "Leave biases and the norms' parameters without weight decay."),
           field(s, "clip_norm", &C::clip_norm, number(0, 1e12),
                 "Scale gradients down to this global norm; 0: off."),
           field(s, "in_backward", &C::in_backward, boolean(),
                 "Update each parameter as soon as its gradient is complete, so that gradients are "
                 "never all in memory. Without clip_norm, gradient accumulation, checkpointing.")}};
}

Section schedule() {
  constexpr auto s = &Config::schedule;
  using C = ScheduleConfig;
  return {"schedule",
          "The learning rate over time.",
          {field(s, "name", &C::name, choice(schedule_names()), "Which schedule."),
           field(s, "warmup_steps", &C::warmup_steps, integer(0, kMany),
                 "Steps of linear warm-up before all but one_cycle."),
           field(s, "warmup_epochs", &C::warmup_epochs, number(0, 1e6),
                 "The same in epochs; the two add up."),
           field(s, "milestones", &C::milestones, list(positive(1e6), 0, 64),
                 "step: the epochs after which the rate is multiplied by gamma."),
           field(s, "gamma", &C::gamma, positive(1), "step: the factor at each milestone."),
           field(s, "min_lr", &C::min_lr, number(0, 1e4),
                 "cosine, linear, one_cycle: the last rate; one_cycle with 0: lr / 250000."),
           field(s, "peak_at", &C::peak_at, below(0, 1),
                 "one_cycle: fraction of the run at which the rate is highest.")}};
}

Section compression() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  return {
      "compression",
      "How activations are kept until the backward pass.",
      {field(s, "policy", &C::policy, choice({"gact", "budget", "actnn", "acgc"}),
             "Who decides how each tensor is kept. gact, actnn: the level. budget: a plan within "
             "memory_budget. acgc: an error bound for each from acgc_growth."),
       field(
           s, "memory_budget", &C::memory_budget, text(),
           "What a step may take at most: \"2 GiB\", or a share of what it takes with everything "
           "raw, \"1/6\" or \"6x\"; with \" activations\" only what is kept for backward counts. A "
           "plan chooses for each tensor among raw, rebuilt, 1 to 16 bits and the folder offload. "
           "Means policy budget; empty: none."),
       field(s, "budget_recompute", &C::budget_recompute, boolean(),
             "budget: recompute blocks, as with checkpointing, where nothing else fits or leaves "
             "good "
             "widths; as few as do that."),
       field(s, "level", &C::level, choice(level_names()),
             "L0: as they are; L1: 4 bits, L1.1: 8, L1.2: 2; L2, L2.1, L2.2: 4, 3, 2 bits on "
             "average, by measured sensitivity; L3: L2 with offload; CB1, CB2: L1 with "
             "checkpointing. actnn: L1: only what products read, 4 bits; L2: all; L3: 2 bits on "
             "average, by tensor and sample; L4, L5: L3 with offload."),
       field(s, "bits", &C::bits, integer(0, 16), "Instead of the level's bits, unless 0."),
       field(
           s, "average_bits", &C::average_bits, number(0, 16),
           "L2, L3, actnn: instead of the level's average, such as 2.5, unless 0. Codes that carry "
           "a sign have at least 2."),
       field(s, "adapt_interval", &C::adapt_interval, integer(1, kMany),
             "L2, L3, actnn: steps from one measurement of sensitivities to the next."),
       field(s, "adapt_samples", &C::adapt_samples, integer(2, kMany),
             "L2, L3: samples of the batch that measure."),
       field(s, "adapt_share", &C::adapt_share, number(0, 1),
             "L2, L3: the share of an interval's samples that may be used to measure; tensors take "
             "turns where it does not suffice for all."),
       field(s, "acgc_growth", &C::acgc_growth, number(1e-6, 1e6),
             "acgc: e; errors of e^2 of the squared gradient are allowed."),
       field(
           s, "acgc_rule", &C::acgc_rule, choice({"derived", "published"}),
           "acgc: bounds that hold; published: those of the paper, its widths and rounding, and no "
           "recipes."),
       field(s, "acgc_count", &C::acgc_count, choice({"worst", "expected"}),
             "acgc: what is bounded: errors in the worst case, or, of stochastic rounding, what is "
             "expected of them, which takes far fewer bits."),
       field(s, "acgc_codec", &C::acgc_codec, choice(compress::error_bounded_names()),
             "acgc: fixed: a width for each channel; fixed_z: the same, zeros as masks where that "
             "is less; entropy: steps coded by their entropy; zfp where built with it."),
       field(s, "acgc_interval", &C::acgc_interval, integer(1, kMany),
             "acgc: steps from one look at the gradients to the next."),
       field(s, "recipes", &C::recipes, boolean(),
             "Rebuild cheap tensors from what is kept anyway, instead of keeping them."),
       field(s, "signs", &C::signs, choice({"codes", "masks", "rebuilt"}),
             "Where the signs of relus are kept: in the codes of a neighbour, at no cost; as "
             "masks of 1 bit; rebuilt: nowhere, which biases gradients."),
       field(s, "chain", &C::chain, number(0, 1e6),
             "How many times its own elements a recipe may rebuild on the way; 0: recipes start "
             "from what is kept."),
       field(s, "slice_bytes", &C::slice_bytes, or_null(integer(0, kMany)),
             "Backward unpacks and rebuilds tensors in slices of the batch of about so many bytes; "
             "0: whole; null: 8 MiB, which caches hold, on CUDA 64 MiB."),
       field(s, "min_elements", &C::min_elements, integer(0, kMany),
             "Tensors of at most so many elements are kept as they are."),
       field(s, "group_size", &C::group_size, group_size(),
             "Values of one channel that share a minimum and a scale."),
       field(s, "group_axis", &C::group_axis, choice({"column", "row"}),
             "row: values that share them are neighbours in memory, of all channels, and signs are "
             "kept as masks; to compare with, not for actnn and acgc."),
       field(s, "rounding", &C::rounding, choice({"auto", "stochastic", "dithered", "nearest"}),
             "stochastic is unbiased; dithered is unbiased with half the variance, at the same "
             "bytes, for time where unpacking is bound by arithmetic; nearest is closer but "
             "biased; auto: dithered, but stochastic on CUDA, with acgc and with rebuilt signs."),
       field(s, "entropy", &C::entropy, boolean(),
             "Code packed values by their entropy where that saves 5 % of their bytes: no loss, "
             "but time."),
       field(
           s, "track_interval", &C::track_interval, integer(0, kMany),
           "Steps from one measurement of the gradient's variance, of what compression adds to it "
           "and of the loss's smoothness to the next; 0: none, or with guard 200."),
       field(s, "guard", &C::guard, number(0, 1e3),
             "The share of the minibatch's variance that compression may add to the gradient's, "
             "such as 0.1: bits (of actnn their average, of acgc the growth, of budget what it "
             "uses of what it may) rise while it adds more and fall where it adds far less; 0: "
             "off."),
       field(s, "guard_min_bits", &C::guard_min_bits, integer(1, 16),
             "Below which the guard does not go."),
       field(s, "offload", &C::offload, text(),
             "Folder of a disk to which activations go, packed or as they are; empty: they stay in "
             "memory. The file has no name and vanishes with the run. On CUDA they go to pinned "
             "host memory instead."),
       without_effect(bytes_field(s, "offload_window", &C::offload_window,
                                  "What of them stays in memory at most (\"256 MiB\").",
                                  "compression.offload_window"))}};
}

Section train() {
  constexpr auto s = &Config::train;
  using C = TrainConfig;
  return {
      "train",
      "The training loop.",
      {field(s, "epochs", &C::epochs, integer(1, 1'000'000), "Passes over the data."),
       field(s, "steps", &C::steps, integer(0, kMany),
             "Stop after so many steps instead; 0: by epochs."),
       field(s, "log_interval", &C::log_interval, integer(1, kMany),
             "Steps between lines of metrics.jsonl."),
       without_effect(field(s, "checkpoint_interval", &C::checkpoint_interval, integer(0, kMany),
                            "Steps between checkpoints; 0: after each epoch only.")),
       field(s, "eval_interval", &C::eval_interval, integer(1, 1'000'000),
             "Epochs between evaluations on the test images; the last epoch always has one."),
       field(s, "patience", &C::patience, integer(0, 1'000'000),
             "Stop after so many epochs without a lower validation loss, whose epoch is the best "
             "one; 0: never, and the best is that of the highest accuracy or other metric."),
       field(s, "label_smoothing", &C::label_smoothing, below(0, 1),
             "Weight of the uniform distribution in the target."),
       field(s, "gradient_accumulation", &C::gradient_accumulation, integer(1, 4096),
             "Batches that make one step: its loss is the mean over all their targets."),
       field(s, "checkpointing", &C::checkpointing, boolean(),
             "Keep only the inputs of residual blocks, whole, and recompute the rest in backward."),
       field(s, "checkpointed_blocks", &C::checkpointed_blocks, integer(0, kMany),
             "checkpointing: only of so many blocks, from the first; 0: of all.")}};
}

Section run() {
  constexpr auto s = &Config::run;
  using C = RunConfig;
  return {
      "",
      "The whole run.",
      {field(s, "seed", &C::seed, integer(0, INT64_MAX), "Everything random follows from it."),
       field(s, "device", &C::device, choice({"cpu", "cuda", "meta"}),
             "Where to compute; meta: nowhere, only memory is counted (bench step)."),
       field(s, "precision", &C::precision, choice({"f32", "tf32", "bf16"}),
             "tf32: CUDA's matrix products and convolutions round f32 operands to 10 bits; bf16: "
             "activations on CUDA are bf16, parameters f32."),
       without_effect(field(s, "cuda_graphs", &C::cuda_graphs, boolean(),
                            "Record a step of each shape once and replay it (CUDA).")),
       field(s, "deterministic", &C::deterministic, boolean(),
             "Convolutions on CUDA give equal bits in every run; false: cuDNN may add in any "
             "order, which can be faster."),
       bytes_field(
           s, "workspace_limit", &C::workspace_limit,
           "The most bytes of workspace of a convolution, product or attention on CUDA, where "
           "there "
           "is a way that takes less (\"512 MiB\"); a budget of the peak allows a sixteenth of it "
           "at most.",
           "workspace_limit"),
       without_effect(field(s, "threads", &C::threads, integer(0, 4096),
                            "Threads to compute with; 0: one per core.")),
       without_effect(bytes_field(s, "memory_limit", &C::memory_limit,
                                  "Fail beyond so many bytes of tensors (\"2 GiB\"); 0: no limit.",
                                  "memory_limit"))}};
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {model(),       data(),  optim(), schedule(),
                                                compression(), train(), run()};
  return sections;
}

}  // namespace frugal::apps
