#include "apps/config/keys/config_table.h"

#include <algorithm>

#include "apps/config/data/data_kinds.h"
#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_field.h"
#include "apps/config/keys/level_keys.h"
#include "apps/config/make_model.h"
#include "apps/config/resolve.h"
#include "compress/policies/policy_kind.h"
#include "models/registry.h"
#include "models/sequential/sequential.h"
#include "models/zoo/keys.h"
#include "optim/registry.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;
constexpr int64_t kBatch = 1 << 20;
// The options of a trainer that are about updates, and so in the section "optim".
const std::vector<std::string_view> kOfUpdates = {"clip_norm", "in_backward"};

// ---- the networks' own keys
Field network_field(const by_name::Key& key) {
  const std::string name = key.name;
  const bool own = key.by == by_name::Key::own;
  Field f;
  f.key = name;
  const bool layers = key.range.may_be_layers;
  f.schema = layers                              ? layers_schema()
             : name == models::keys::kTrunk.name ? choice(models::trunk_names())
                                                 : schema_of(key.range);
  if (own) f.schema = or_null(f.schema);
  f.doc = key.help;
  f.reader = networks(key.name, models::readers_of(name));
  const Json usual = own ? Json(nullptr) : json_of(models::default_of(name));
  f.get = [=](const Config& c) {
    const auto given = c.model.options.find(name);
    return given == c.model.options.end() ? usual : json_of(given->second);
  };
  f.set = [name, layers, range = key.range](Config& c, const Json& json) {
    const by_name::Value value = value_of(range, json, "model." + name);
    if (layers) models::check_layers(value.list(), "model." + name);
    if (value.is_nothing())
      c.model.options.erase(name);
    else
      c.model.options[name] = value;
  };
  return f;
}

Field vocab_size() {
  return field(&Config::model, "vocab_size", &ModelConfig::vocab_size,
               or_null(schema_of(models::keys::kVocabSize.range)),
               "Transformers: token ids are below; null: as many as the data has.",
               networks("vocab_size", "BERT, GPT-2, decoder and a sequential network of tokens"));
}

// ---- the table
Section model() {
  constexpr auto s = &Config::model;
  using C = ModelConfig;
  Section section{
      "model",
      "The network.",
      {field(s, "name", &C::name, choice(model_names()), "Which network.", every_run()),
       a_path(field(
           s, "weights", &C::weights, or_null(text()),
           "Start from these weights: a safetensors file, a folder with such files and their "
           "index, or the folder of a run (its best checkpoint). Names of torchvision, timm "
           "and Hugging Face are understood. The config.json of a folder of Hugging Face's hub "
           "gives the keys of the network that are not given here. A resumed run does not read "
           "them again.",
           every_run())),
       a_path(field(
           s, "adapter", &C::adapter, or_null(text()),
           "Start from this adapter: a folder of PEFT or of MLX, or a file .gguf of llama.cpp. It "
           "gives the keys of the section adapter that are not given here. A resumed run does "
           "not read it again.",
           every_run())),
       field(s, "head", &C::head, choice({"keep", "reset"}),
             "reset: take all weights but those of the last layer, which starts anew: for "
             "other classes than the weights were trained on.",
             {"model.weights",
              {"model.weights"},
              [](const Config& c) { return c.model.weights.has_value(); }}),
       field(s, "num_classes", &C::num_classes, or_null(integer(1, 1 << 20)),
             "Outputs; null: as many as the data has classes.", every_run()),
       field(s, "in_channels", &C::in_channels, or_null(integer(1, 4096)),
             "Input channels; null: as many as the images have.",
             with_data(BatchSpec::Kind::images))}};
  for (const by_name::Key& key : models::all_keys()) section.fields.push_back(network_field(key));
  section.fields.push_back(vocab_size());
  add(
      section, "pack", models::PackOptions::list(),
      [](auto& c) -> auto& { return c.model.packing; });
  field_named(section, "frozen_layers").reader = {
      "model.frozen bf16, int8 and nf4", {"model.frozen"}, packs_weights};
  add(
      section, "knn", train::KnnOptions::list(),
      [](auto& c) -> auto& { return c.train.of_task.knn; });
  section.fields.back().reader = networks("neighbours", "simsiam, byol and moco_v2");
  return in_order(
      std::move(section),
      "name weights adapter head frozen frozen_layers num_classes in_channels modules shortcut "
      "stem "
      "hidden dropout "
      "attention_dropout stochastic_depth input_dropout layers width window heads "
      "feed_forward max_positions vocab_size family kv_heads head_size norm_eps "
      "activation tied attention_bias mlp_bias rope_base rope_scaling rope_factor "
      "rope_first_length rope_low rope_high rope_most_turns rope_least_turns "
      "rope_whole_pairs rope_gain rope_local_base rope_layers attention_window "
      "window_layers attention_scale attention_cap logit_cap rebuilt_products batch_norm residual "
      "jump alpha theta "
      "aggregation out_heads slope aux_loss trunk anchor_side box_loss "
      "deterministic_sampling projector predictor momentum queue temperature");
}

Section data() {
  constexpr auto s = &Config::data;
  using C = DataConfig;
  Section section{
      "data",
      "The data.",
      {field(s, "name", &C::name, choice(dataset_names()),
             "Which dataset; random: noise, made in memory.", every_run()),
       a_path(
           without_effect(field(s, "dir", &C::dir, or_null(text()),
                                "Folder of the files; null: the first of $FRUGAL_DATA, "
                                "~/.cache/frugal/datasets and /usr/share/datasets that has them.",
                                {"data in files",
                                 {"data.name"},
                                 [](const Config& c) { return traits(c).reads_files; }}))),
       field(s, "batch_size", &C::batch_size, integer(1, kBatch),
             "Samples in a training batch; of a whole graph, all.",
             {"all data but whole graphs",
              {"data.name", "data.sampler"},
              [](const Config& c) {
                return traits(c).kind != BatchSpec::Kind::graph || c.data.sampler != "full";
              }}),
       field(s, "test_batch_size", &C::test_batch_size, or_null(integer(1, kBatch)),
             "Samples in a test batch; null: as data.batch_size, so that an evaluation needs less "
             "memory than a step.",
             {"images and text",
              {"data.name"},
              [](const Config& c) { return traits(c).kind != BatchSpec::Kind::graph; }}),
       field(s, "drop_last", &C::drop_last, boolean(),
             "Leave out the last batch of a training epoch when it is not full.", cut_samples()),

       without_effect(field(s, "workers", &C::workers, integer(0, 256),
                            "Threads that prepare batches ahead; 0: none.", loaded())),
       field(s, "train_samples", &C::train_samples, integer(0, kMany),
             "Use only the first so many training samples; 0: all.",
             {"images, rows, GLUE, conversations, jsonl with encoders and random_tokens",
              {"data.name"},
              has_samples}),
       field(s, "test_samples", &C::test_samples, integer(0, kMany),
             "Use only the first so many test samples; 0: all.",
             {"images, rows, GLUE, conversations, and jsonl and random_tokens with encoders",
              {"data.name", "model.name"},
              [](const Config& c) { return has_samples(c) && !makes_windows(c); }}),

       field(s, "split", &C::split, or_null(list(positive(1), 2, 2)),
             "Graphs and own files: shares to train and to validate on, drawn with the seed; the "
             "rest is tested on. null: the distribution's own, or [0.6, 0.2] of a graph and "
             "[0.8, 0.1] of own files.",
             {"graphs, image_folder, image_list, tensors, csv, and jsonl with encoders",
              {"data.name"},
              [](const Config& c) {
                return traits(c).kind == BatchSpec::Kind::graph || traits(c).splits;
              }})}};
  field_named(section, "batch_size").option = "loader.batch_size";
  for (const DataKind* kind : data_kinds())
    for (const DataKey& key : kind->keys()) {
      section.fields.push_back(field_of(
          "data", "data", key.option, [](auto& c) -> auto& { return c.data; }));
      section.fields.back().reader = key.reader;
    }
  for (const char* const path : {"vocabulary", "class_names"})
    field_named(section, path).is_path = true;
  return in_order(
      std::move(section),
      "name dir batch_size test_batch_size drop_last crop_padding flip cutout normalize mean std "
      "image_size channels resize crop_area scale mask_values sides longest_side auto_augment "
      "color_jitter grayscale blur erasing mixup cutmix skip_bad exif several_labels class_names "
      "layout target path_column task drop encoding categories missing text second_text workers "
      "train_samples test_samples shape classes vocabulary tokenizer max_length answers_only "
      "truncate join validation split "
      "sparse_features sampler sampler_batches walk_length fan_outs clusters nodes edges features");
}

Section views_of_data() {
  Section section = section_of(
      "data.views",
      "How the two views of a picture are made that simsiam, byol and moco_v2 learn from.", "views",
      data::TwoViewOptions::list(), [](auto& c) -> auto& { return c.data.views; });
  for (Field& each : section.fields)
    each.reader = {"the networks simsiam, byol and moco_v2", {"model.name"}, learns_from_views};
  return section;
}

// A momentum that a schedule may set is read where none does.
Reader optimizers_with(const std::string& key) {
  std::vector<std::string> names;
  bool cycled = false;
  for (const optim::Kind& kind : optim::kinds()) {
    if (!kind.has(key)) continue;
    names.push_back(kind.name);
    cycled = kind.momentum() == key;
  }
  const Reader all = optimizers(names);
  if (!cycled) return all;
  return {all.who + " without schedule.cycle_momentum",
          {"optim.name", "schedule.name", "schedule.cycle_momentum"},
          [all](const Config& c) { return all.reads(c) && !c.schedule.cycles(); }};
}

Field optimizer_field(const by_name::Key& key) {
  Field f;
  const std::string name = f.key = key.name;
  f.schema = schema_of(key.range);
  f.doc = key.help;
  for (const optim::Kind& kind : optim::kinds())
    if (kind.has(name) && !(kind.usual(name) == OptimConfig().value(name)))
      f.doc += fmt::format(" {}: {} unless it is given.", kind.name, text_of(kind.usual(name)));
  f.reader = optimizers_with(name);
  f.get = [name](const Config& c) { return json_of(c.optim.value(name)); };
  f.set = [name, range = key.range](Config& c, const Json& json) {
    c.optim.own[name] = value_of(range, json, "optim." + name);
  };
  return f;
}

Section optim() {
  constexpr auto s = &Config::optim;
  using C = OptimConfig;
  std::vector<std::string> names;
  for (const optim::Kind& kind : optim::kinds()) names.push_back(kind.name);
  Section section{"optim",
                  "The optimizer.",
                  {field(s, "name", &C::name, choice(names), "Which optimizer.", every_run())}};
  const auto of = [](auto& c) -> auto& { return c.optim; };
  add(section, "optim", OptimConfig::list(), of);
  field_named(section, "layer_decay").reader =
      networks("layer_decay", "networks of blocks: transformers, Swin and ResNets");
  add(
      section, "trainer", TrainerOptions::list(), [](auto& c) -> auto& { return c.train; },
      kOfUpdates);
  for (const by_name::Key& key : optim::all_keys()) section.fields.push_back(optimizer_field(key));
  return in_order(std::move(section), "name lr momentum trust nesterov beta1 beta2 eps ema");
}

Section schedule() {
  Section section = section_of(
      "schedule", "The learning rate over time.", "schedule", optim::ScheduleOptions::list(),
      [](auto& c) -> auto& { return c.schedule; });
  Reader& cycles = field_named(section, "cycle_momentum").reader;
  cycles.who = "schedule.name one_cycle with every optimizer but";
  for (const optim::Kind& kind : optim::kinds())
    if (kind.momentum().empty()) cycles.who += " " + kind.name;
  cycles.by.emplace_back("optim.name");
  cycles.reads = [one_cycle = cycles.reads](const Config& c) {
    return one_cycle(c) && !optim::kind(c.optim.name).momentum().empty();
  };
  return section;
}

// What all policies share, and how a run is measured.
using Keep = compress::FixedPolicyOptions;
constexpr auto kKeep = [](auto& c) -> auto& { return c.compression; };
constexpr auto kTracking = [](auto& c) -> auto& { return c.compression.tracking; };

Section compression() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  Field policy = field(
      s, "policy", &C::policy,
      choice(names_of({PolicyKind::gact, PolicyKind::actnn, PolicyKind::acgc})),
      "Who decides how each tensor is kept. gact: one width, or widths by measured sensitivity. "
      "actnn: widths of tensors and samples by formulas. acgc: an error bound for each tensor, "
      "from "
      "acgc.growth. With memory_budget a plan decides instead.",
      every_run());
  policy.get = [](const Config& c) {
    const PolicyKind kind = c.compression.policy;
    return Json(name_of(kind == PolicyKind::budget ? PolicyKind::gact : kind));
  };
  Field memory_budget = field(
      s, "memory_budget", &C::memory_budget,
      {{"type", {"integer", "string"}},
       {"minimum", 1},
       {"examples", {"2 GiB", "50%", "1/6", "6x"}}},
      "What a step may take at most: bytes, such as \"2 GiB\", or a share of what it takes with "
      "everything raw, \"50%\", \"1/6\" or \"6x\"; with \" activations\" only what is kept for "
      "backward counts. A plan chooses for each tensor among raw, rebuilt, 1 to 16 bits and the "
      "folder offload. It takes the place of bits; empty: none.",
      {"compression.policy gact", {"compression.policy"}, [](const Config& c) {
         return c.compression.policy == PolicyKind::gact ||
                c.compression.policy == PolicyKind::budget;
       }});
  memory_budget.set = [](Config& c, const Json& json) {
    c.compression.memory_budget = json.is_string() ? json.get<std::string>() : json.dump();
  };
  Section section{
      "compression",
      "How activations are kept until the backward pass.",
      {field(
           s, "bits", &C::bits, number(0, 16),
           "Bits of a value: 0: as it is; 1 to 16: this width everywhere; a fraction such as 2.5: "
           "this average, each tensor with a width of its own (see also gact.adaptive and "
           "actnn.adaptive). Codes that carry a sign have at least 2.",
           policies({PolicyKind::gact, PolicyKind::actnn})),
       std::move(memory_budget), std::move(policy), preset_field(), level_field(),
       field(s, "entropy", &C::entropy, boolean(),
             "Code packed values by their entropy where that saves 5 % of their bytes: no loss, "
             "but time.",
             packing()),
       a_path(field(s, "offload", &C::offload, text(),
                    "Folder of a disk to which activations go, packed or as they are; empty: they "
                    "stay in memory. The file has no name and vanishes with the run. On CUDA they "
                    "go to pinned host memory instead.",
                    every_run()))}};
  field_named(section, "memory_budget").option = "budget.memory";
  field_named(section, "offload").option = "choice.offload";
  add(section, "keep", Keep::list(), kKeep, {"recipes"});
  add(section, "tracking", TrackingOptions::list(), kTracking, {"guard"});
  field_named(section, "recipes").reader = {
      "policies gact and acgc, and actnn without products_only",
      {"compression.policy", "compression.memory_budget"},
      [](const Config& c) { return may_rebuild(c) && policy_of(c) != PolicyKind::budget; }};
  return in_order(std::move(section), "bits memory_budget policy preset level recipes entropy");
}

// Readers of keys of a section, where their owners cannot know who reads them.
using Readers = std::vector<std::pair<std::vector<const char*>, Reader>>;
Section read_by(Section section, const Readers& readers) {
  for (const auto& [keys, reader] : readers)
    for (const char* key : keys) field_named(section, key).reader = reader;
  return section;
}

Section gact() {
  constexpr auto s = &Config::compression;
  Section section{
      "compression.gact",
      "Widths by measured sensitivity: policy gact, and memory_budget.",
      {field(s, "adaptive", &CompressionConfig::gact_adaptive, boolean(),
             "Each tensor gets a width of its own also where bits, their average, is a whole "
             "number.",
             {"policy gact with bits above 0",
              {"compression.policy", "compression.bits", "compression.memory_budget"},
              [](const Config& c) { return policy_of(c) == PolicyKind::gact && packs(c); }})}};
  add(
      section, "measuring", compress::Measuring::list(),
      [](auto& c) -> auto& { return c.compression.measuring; });
  add(
      section, "gact", compress::AdaptiveOptions::list(),
      [](auto& c) -> auto& { return c.compression.gact; });
  const std::vector<std::string> by = {"compression.policy", "compression.bits",
                                       "compression.gact.adaptive", "compression.memory_budget"};
  return read_by(
      std::move(section),
      {{{"interval", "samples", "share"},
        {"what measures sensitivities: policy gact with adaptive widths, and memory_budget", by,
         measures}},
       {{"solver"}, {"policy gact with adaptive widths", by, [](const Config& c) {
                       return policy_of(c) == PolicyKind::gact && chooses_widths(c);
                     }}}});
}

Section actnn() {
  const Reader packed = {
      "policy actnn with bits above 0",
      {"compression.policy", "compression.bits"},
      [](const Config& c) { return policy_of(c) == PolicyKind::actnn && packs(c); }};
  const Reader mixed = {
      "policy actnn with adaptive widths",
      {"compression.policy", "compression.bits", "compression.actnn.adaptive"},
      [](const Config& c) { return policy_of(c) == PolicyKind::actnn && chooses_widths(c); }};
  const Reader by_sample = {
      "policy actnn with adaptive widths by sample, and data whose samples come again",
      {"compression.policy", "compression.bits", "compression.actnn.adaptive",
       "compression.actnn.by_sample", "data.name"},
      [mixed](const Config& c) {
        return mixed.reads(c) && c.compression.actnn.by_sample && has_samples(c);
      }};
  return read_by(
      section_of(
          "compression.actnn", "Widths of tensors and of their samples by formulas: policy actnn.",
          "actnn", compress::ActnnOptions::list(),
          [](auto& c) -> auto& { return c.compression.actnn; }),
      {{{"adaptive", "products_only"}, packed},
       {{"interval", "by_sample", "by_tensor", "norms", "gradients"}, mixed},
       {{"use_gradient"}, by_sample}});
}

Section acgc() {
  Section section = section_of(
      "compression.acgc", "An error bound for each tensor: policy acgc.", "acgc",
      compress::AcgcOptions::list(), [](auto& c) -> auto& { return c.compression.acgc; });
  for (Field& each : section.fields) each.reader = policies({PolicyKind::acgc});
  return section;
}

Section budget() {
  Section section{
      "compression.budget",
      "The plan of memory_budget.",
      {field(&Config::compression, "recompute", &CompressionConfig::budget_recompute, boolean(),
             "Recompute blocks, as with checkpointing, where nothing else fits or leaves good "
             "widths; as few as do that.",
             {"memory_budget", {"compression.memory_budget"}, [](const Config& c) {
                return policy_of(c) == PolicyKind::budget;
              }})}};
  section.fields[0].option = "planner.recompute";
  return section;
}

Section advanced() {
  constexpr auto s = &Config::compression;
  using C = CompressionConfig;
  Section section{
      "compression.advanced",
      "How packing, rebuilding, moving and measuring work, for every policy.",
      {field(
           s, "track_interval", &C::track_interval, integer(0, kMany),
           "Steps from one measurement of the gradient's variance, of what compression adds to it "
           "and of the loss's smoothness to the next; 0: none, or with guard 200.",
           every_run()),
       a_path(without_effect(
           field(s, "profile", &C::profile, text(),
                 "A file that `frugal bench step --record-profile` wrote on a run with values: the "
                 "widths that steps on meta count with; empty: averages.",
                 on({"meta"}, "device meta"))))}};
  add(section, "keep", Keep::list(), kKeep);
  std::erase_if(section.fields, [](const Field& each) { return each.key == "recipes"; });
  add(
      section, "offload", compress::OffloadOptions::list(),
      [](auto& c) -> auto& { return c.compression.file; });
  add(section, "tracking", TrackingOptions::list(), kTracking, {"guard_min_bits", "track_samples"});
  const auto is_guarded = [](const Config& c) { return c.compression.tracking.guard > 0; };
  const Readers readers = {
      {{"signs"}, policies({PolicyKind::gact, PolicyKind::actnn, PolicyKind::budget})},
      {{"chain"},
       {"recipes",
        {"compression.recipes", "compression.policy", "compression.bits"},
        [](const Config& c) { return rebuilds(c); }}},
      {{"slice_bytes"}, every_run()},
      {{"min_elements"},
       {"what packs activations, and offload",
        {"compression.policy", "compression.bits", "compression.offload"},
        [](const Config& c) { return packs(c) || !c.compression.offload.empty(); }}},
      {{"group_size"}, packing()},
      {{"group_axis"},
       {"policies gact and budget, where they pack",
        {"compression.policy", "compression.bits"},
        [](const Config& c) {
          return packs(c) &&
                 (policy_of(c) == PolicyKind::gact || policy_of(c) == PolicyKind::budget);
        }}},
      {{"recomputed"},
       {"policy gact with bits above 0, where train.checkpointing recomputes blocks",
        {"compression.policy", "compression.bits", "train.checkpointing"},
        [](const Config& c) {
          return policy_of(c) == PolicyKind::gact && packs(c) && checkpoints(c);
        }}},
      {{"rounding"},
       {packing().who, packing().by,
        // Without packing, accept only what resolve() turns "auto" into.
        [](const Config& c) {
          return packs(c) || c.compression.rounding != compress::Rounding::nearest;
        }}},
      {{"offload_window"},
       {"offload",
        {"compression.offload"},
        [](const Config& c) { return !c.compression.offload.empty(); }}},
      {{"guard_min_bits"}, {"the guard", {"compression.guard"}, is_guarded}},
      {{"track_samples"},
       {"guard and track_interval",
        {"compression.guard", "compression.advanced.track_interval"},
        [is_guarded](const Config& c) {
          return is_guarded(c) || c.compression.track_interval > 0;
        }}}};
  return in_order(read_by(std::move(section), readers),
                  "signs chain slice_bytes min_elements group_size group_axis recomputed rounding "
                  "offload_window guard_min_bits track_interval profile track_samples");
}

std::vector<std::string> metric_choices() {
  std::vector<std::string> names = {"auto", "accuracy"};
  for (const MetricName& metric : known_metrics()) names.emplace_back(metric.name);
  return names;
}

Section train_section() {
  constexpr auto s = &Config::train;
  using C = TrainConfig;
  Section section{
      "train",
      "The training loop.",
      {without_effect(field(s, "tensorboard", &C::tensorboard, boolean(),
                            "Also write what metrics.jsonl gets to TensorBoard's event files, in "
                            "the folder tensorboard of the run.",
                            every_run())),
       field(s, "metric", &C::metric, choice(metric_choices()),
             "What evaluations measure beside the loss. auto: what the data usually have, such as "
             "perplexity or r2; accuracy: nothing else. The best epoch is the best by this "
             "metric, or that of the highest accuracy where there is none.",
             every_run()),
       field(s, "patience", &C::patience, integer(0, 1'000'000),
             "Stop after so many epochs without a lower validation loss, whose epoch is the best "
             "one; 0: never, and train.metric says which is the best. It does what "
             "train.early_stop.patience does with its unit epochs.",
             with_data(BatchSpec::Kind::graph)),
       field(s, "checkpointing", &C::checkpointing, boolean(),
             "Keep only the inputs of residual blocks, and recompute the rest in backward.",
             networks("checkpointing",
                      "networks of blocks, which are all but mlp, U-Net, HRNet, dilation8, graph "
                      "networks and a sequential network without residuals and pools")),
       field(s, "checkpointed_blocks", &C::first_blocks, integer(0, kMany),
             "checkpointing: only of so many blocks, from the first; 0: of all.",
             {"train.checkpointing", {"train.checkpointing"}, checkpoints}),
       field(s, "freeze", &C::freeze, list(text(), 0, 64),
             "Parameters that are not trained: patterns or beginnings of names, such as "
             "\"layer1.\" or \"*.bias\"; \"all but head\": all but the last layer; \"!layer4.\": "
             "trains these nevertheless. Later entries go before earlier ones.",
             every_run())}};
  add(
      section, "trainer", TrainerOptions::list(), [](auto& c) -> auto& { return c.train; });
  std::erase_if(section.fields, [](const Field& field) { return is_among(field.key, kOfUpdates); });
  add(
      section, "task", train::TaskOptions::list(),
      [](auto& c) -> auto& { return c.train.of_task; });
  add(
      section, "freeze", FreezeOptions::list(), [](auto& c) -> auto& { return c.train.freezing; });
  const auto reader = [&](const char* key) -> Reader& { return field_named(section, key).reader; };
  reader("loss") = with_pixels();
  reader("focal_gamma") = {"train.loss focal", {"train.loss"}, [](const Config& c) {
                             return with_pixels().reads(c) &&
                                    c.train.of_task.pixel_loss == train::PixelLoss::focal;
                           }};
  reader("class_weights") = {
      "data with classes, but with train.loss dice, data.mixup, data.cutmix or GraphSAINT's "
      "samplers",
      {"data.name", "model.name", "train.loss", "data.mixup", "data.cutmix", "data.sampler"},
      weighs_classes};
  for (const char* key : {"freeze_epochs", "freeze_statistics"})
    reader(key) = {"train.freeze", {"train.freeze"}, freezes};
  return in_order(std::move(section),
                  "epochs steps log_interval tensorboard checkpoint_interval checkpoint_seconds "
                  "eval_interval metric patience keep_best grad_norms label_smoothing loss "
                  "focal_gamma class_weights gradient_accumulation checkpointing "
                  "checkpointed_blocks freeze freeze_epochs freeze_statistics");
}

Section distributed_section() {
  constexpr auto s = &Config::distributed;
  using C = DistributedConfig;
  Section section{
      "distributed",
      "Training on several processes, which mpirun or srun starts. With one process nothing here "
      "does anything.",
      {without_effect(field(s, "sharding", &C::sharding, choice({"none", "optimizer", "gradients"}),
                            "optimizer: each rank keeps and updates its share of the optimizer's "
                            "state (ZeRO-1); gradients: it also keeps its share of the gradients "
                            "alone (ZeRO-2).",
                            every_run()))}};
  section.fields[0].option = "ranks.share_gradients";
  add(
      section, "ranks", RanksOptions::list(), [](auto& c) -> auto& { return c.distributed; });
  section.fields.push_back(
      without_effect(field(s, "timeout", &C::timeout, number(0, 1e9),
                           "Seconds after which a rank that does not answer ends the job; 0: "
                           "never.",
                           every_run())));
  return section;
}

Json device() {
  return {{"type", "string"},
          {"pattern", "^(cpu|meta|cuda(:[0-9]{1,4})?)$"},
          {"examples", {"cpu", "cuda", "cuda:1", "meta"}}};
}
Section run() {
  constexpr auto s = &Config::run;
  using C = RunConfig;
  Section section{
      "",
      "The whole run.",
      {field(s, "seed", &C::seed, integer(0, INT64_MAX), "Everything random follows from it.",
             every_run()),
       field(s, "device", &C::device, device(),
             "Where to compute: cpu; cuda, or one of several GPUs, such as cuda:1; meta: nowhere, "
             "only memory is counted (bench step).",
             every_run())}};
  add(
      section, "run", RunConfig::list(), [](auto& c) -> auto& { return c.run; });
  field_named(section, "cuda_graphs").option = "trainer.cuda_graphs";
  return section;
}

}  // namespace

const std::vector<Section>& config_sections() {
  static const std::vector<Section> sections = {
      model(),
      section_of(
          "adapter",
          "Small matrices that are trained beside frozen weights: LoRA and what came of it. The "
          "names of the keys are those of Hugging Face's library PEFT, but for some.",
          "adapter", models::AdapterOptions::list(), [](auto& c) -> auto& { return c.adapter; }),
      data(),
      views_of_data(),
      optim(),
      schedule(),
      compression(),
      gact(),
      actnn(),
      acgc(),
      budget(),
      advanced(),
      train_section(),
      section_of(
          "train.early_stop",
          "Ends training when evaluations get no better: on the validation set where there is one, "
          "else on the test set.",
          "early_stop", EarlyStopOptions::list(),
          [](auto& c) -> auto& { return c.train.early_stop; }),
      distributed_section(),
      run()};
  return sections;
}

}  // namespace frugal::apps
