// What the data decide of a network, and what they refuse.
#include <algorithm>

#include "apps/config/data/make_tokenizer.h"
#include "apps/config/make_model.h"
#include "train/metrics/metric_names.h"

namespace frugal::apps {
namespace {

bool reads(const std::string& name, const BatchSpec& spec) {
  // There are lists of layers for all data but these.
  if (name == kSequential)
    return spec.kind != BatchSpec::Kind::graph && !spec.target_of_each_pixel() && !spec.has_boxes();
  const models::Traits& traits = models::network(name).traits;
  const Family family = traits.family;
  switch (spec.kind) {
    case BatchSpec::Kind::images:
      if (spec.has_boxes()) return family == Family::detection;
      return family == (spec.target_of_each_pixel() ? Family::segmentation : Family::images);
    case BatchSpec::Kind::rows:
      return traits.reads_rows;
    case BatchSpec::Kind::graph:
      return family == Family::graph;
    case BatchSpec::Kind::sequences:
      return family == Family::encoder ||
             (family == Family::decoder && spec.target_of_each_token());
  }
  return false;
}

std::string readers_of(const BatchSpec& spec) {
  std::vector<std::string> names = model_names();
  std::erase_if(names, [&](const std::string& name) { return !reads(name, spec); });
  return fmt::format("{}", fmt::join(names, ", "));
}

// Refuses what model.aggregation max cannot do: the maximum has no weights and no sparse form.
void check_maximum(const Config& config, const BatchSpec& spec) {
  const std::string& sampler = config.data.sampler;
  const auto given = config.model.options.find("aggregation");
  if (given == config.model.options.end() || given->second != "max") return;
  if (spec.is_sparse())
    throw ConfigError("data.sparse_features", "expected false with model.aggregation max");
  if (sampler == "random_walk" || sampler == "node" || sampler == "edge")
    throw ConfigError(
        "model.aggregation",
        fmt::format("expected mean with the data.sampler {}, which weights edges", sampler));
}

// What would contradict a network that follows another one and has no labels.
void check_self_supervised(const Config& config) {
  const std::string& name = config.model.name;
  const auto refuse = [&](const char* key, const std::string& why) {
    throw ConfigError(key, fmt::format("expected {} for {}", why, name));
  };
  if (!config.train.freeze.empty())
    refuse("train.freeze", "[], which is for fine-tuning the trunk afterwards,");
  if (config.adapter.type != models::AdapterType::none)
    refuse("adapter.type", "none, because another network follows this one,");
  if (config.train.label_smoothing > 0)
    refuse("train.label_smoothing", "0, because there are no labels,");
  if (config.train.patience > 0) refuse("train.patience", "0, because evaluations have no loss,");
  if (config.train.early_stop.patience > 0 && config.train.early_stop.metric != "metric")
    refuse("train.early_stop.metric", "metric, because evaluations have no loss,");
  if (config.optim.ema > 0) refuse("optim.ema", "0");
  if (config.run.cuda_graphs) refuse("cuda_graphs", "false");
  if (config.data.batch_size == 1) refuse("data.batch_size", "at least 2, for batch norm,");
}

}  // namespace

void check_metric(const Config& config, const BatchSpec& spec, const std::string& metric) {
  const MetricName* const known = find_metric(metric);
  if (known == nullptr || !known->counts_pairs || spec.has_several_labels()) return;
  const bool tokens = spec.target_of_each_token();
  const int64_t outputs = tokens ? *config.model.vocab_size : *config.model.num_classes;
  if (outputs != spec.classes)
    throw ConfigError(tokens ? "model.vocab_size" : "model.num_classes",
                      fmt::format("expected {}, the classes of {}, with train.metric {}, got {}",
                                  spec.classes, config.data.name, known->name, outputs));
}

void resolve_model(Config& config, const BatchSpec& spec) {
  ModelConfig& model = config.model;
  const std::string& data = config.data.name;
  if (!reads(model.name, spec))
    throw ConfigError("model.name",
                      fmt::format("expected a network for the data {}, one of {}; got "
                                  "{}",
                                  data, readers_of(spec), model.name));
  check_maximum(config, spec);
  check_options(model);
  if (!model.num_classes) model.num_classes = spec.classes;
  if (*model.num_classes < spec.classes)
    throw ConfigError("model.num_classes",
                      fmt::format("expected at least {}, the classes of {}, got {}", spec.classes,
                                  data, *model.num_classes));
  const bool several = spec.has_several_labels();
  if ((several || spec.has_values()) && *model.num_classes != spec.classes)
    throw ConfigError("model.num_classes",
                      fmt::format("expected {}, the {} of {}, got {}", spec.classes,
                                  several ? "labels" : "values", data, *model.num_classes));
  if ((several || spec.has_values()) && config.train.label_smoothing > 0)
    throw ConfigError(
        "train.label_smoothing",
        fmt::format("expected 0 for {}, whose targets are {}, got {}", data,
                    several ? "several labels" : "values", config.train.label_smoothing));
  if (spec.has_boxes() && config.train.label_smoothing > 0)
    throw ConfigError("train.label_smoothing",
                      fmt::format("expected 0 for {}, whose losses have no labels to smooth, got "
                                  "{}",
                                  data, config.train.label_smoothing));
  if (spec.kind == BatchSpec::Kind::images) {
    if (!model.in_channels) model.in_channels = spec.sample[2];
    if (*model.in_channels != spec.sample[2])
      throw ConfigError("model.in_channels", fmt::format("expected {}, the channels of {}, got {}",
                                                         spec.sample[2], data, *model.in_channels));
  }
  if (spec.kind == BatchSpec::Kind::sequences) {
    if (!model.vocab_size) model.vocab_size = spec.vocabulary;
    if (*model.vocab_size < spec.vocabulary)
      throw ConfigError(
          "model.vocab_size",
          fmt::format("expected at least {}, the tokens of {}{}, got {}", spec.vocabulary, data,
                      tokenizer_place(config), *model.vocab_size));
    const std::optional<int64_t> longest = model.integer("max_positions");
    const int64_t first = models::network(model.name).traits.first_position;
    if (longest && *longest - first < spec.sample[0])
      throw ConfigError("model.max_positions",
                        fmt::format("expected at least data.max_length{}, {}, got {}",
                                    first > 0 ? fmt::format(" and {} more", first) : "",
                                    spec.sample[0] + first, *longest));
  }
  check_metric(config, spec, config.train.metric);
  const Family family = family_of(model);
  if (model.name == kSequential || family == Family::segmentation ||
      (family == Family::images && !is_self_supervised(model)))
    try_on_meta(model, spec);
  if (is_self_supervised(model)) check_self_supervised(config);
}

}  // namespace frugal::apps
