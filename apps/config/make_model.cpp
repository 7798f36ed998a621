#include "apps/config/make_model.h"

#include <algorithm>

#include "autograd/record.h"
#include "core/random/random_streams.h"
#include "core/words/nearest.h"
#include "core/words/quoted.h"
#include "models/freeze.h"
#include "models/pack.h"
#include "train/tasks/make_task.h"
#include "train/training_step.h"

namespace frugal::apps {
namespace {

using models::Init;
using ModelPtr = std::shared_ptr<Module>;

// Calls `f`, whose options are those of model. in a configuration.
template <class F>
auto with_paths(const F& f) {
  try {
    return f();
  } catch (const OptionError& e) {  // at "resnet50.layers"
    throw ConfigError("model" + e.path().substr(e.path().find('.')), e.reason());
  }
}

// What the configuration and the data say of the options that the network has.
models::Options options_of(const ModelConfig& model, const BatchSpec* spec) {
  models::Options options;
  const auto give = [&](const char* key, const models::Value& value) {
    if (models::has_option(model.name, model.options, key)) options[key] = value;
  };
  for (const auto& [key, value] : model.options) give(key.c_str(), value);
  if (model.num_classes) give("num_classes", *model.num_classes);
  if (model.in_channels) give("in_channels", *model.in_channels);
  if (model.vocab_size) give("vocab_size", *model.vocab_size);
  if (spec == nullptr) return options;
  const bool graph = spec->kind == BatchSpec::Kind::graph;
  give("image", spec->sample[0]);
  give("in_features", graph ? spec->sample[1] : spec->sample.numel());
  give("head", spec->target_of_each_token() ? "masked_lm" : "classification");
  give("sample", std::vector<int64_t>(spec->sample.begin(), spec->sample.end()));
  give("ids", spec->kind == BatchSpec::Kind::sequences);
  give("target", spec->target_of_each_token() ? "each_token" : "one");
  give("vocabulary", spec->vocabulary);
  return options;
}

ModelPtr make_network(Init& init, const ModelConfig& model, const BatchSpec& spec) {
  const models::Options options = options_of(model, &spec);
  const int64_t least = with_paths([&] { return models::sizes(model.name, options).least_side; });
  if (least > 1 && (spec.sample[0] < least || spec.sample[1] < least))
    throw ConfigError("model.name", fmt::format("expected samples of at least {} x {} for {}, got "
                                                "{}",
                                                least, least, model.name, spec.sample));
  try {
    return with_paths([&] { return models::make(model.name, options, init); });
  } catch (const ConfigError&) {
    throw;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {  // options that do not go together
    throw ConfigError("model", e.what());
  }
}

// Calls `f`. Messages of the library that begin with `op` are those of this key.
template <class F>
auto with_key(const char* key, const std::string& op, const F& f) {
  try {
    return f();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    const std::string what = e.what();
    if (!what.starts_with(op + " ")) throw;
    throw ConfigError(key, what.substr(op.size() + 1));
  }
}

void freeze_as_told(Module& network, const TrainConfig& train) {
  with_key("train.freeze", "[freeze]", [&] { freeze(network, train.freeze, train.freezing); });
}

}  // namespace

std::optional<int64_t> ModelConfig::integer(const char* key) const {
  const auto given = options.find(key);
  if (given == options.end()) return std::nullopt;
  return given->second.integer();
}

std::string ModelConfig::trunk() const {
  const auto given = options.find("trunk");
  return (given == options.end() ? models::default_of("trunk") : given->second).text();
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const models::Network& each : models::networks()) names.push_back(each.name);
  return names;
}

Family family_of(const ModelConfig& model) {
  if (!models::is_network(model.name))  // the schema lets no other name through
    throw ConfigError("model.name",
                      fmt::format("expected a known model, got {}; the nearest one is '{}'",
                                  in_quotes(model.name), nearest_name(model.name, model_names())));
  return models::family_of(model.name, model.options);
}

bool is_decoder(const Config& config) { return family_of(config.model) == Family::decoder; }

bool is_self_supervised(const ModelConfig& model) {
  return models::network(model.name).traits.learns_from_views;
}

bool network_reads(const ModelConfig& model, const std::string& key) {
  if (key == "neighbours") return is_self_supervised(model);
  if (key == "layer_decay") return models::network(model.name).traits.has_order;
  if (key == "checkpointing") return models::has_blocks(model.name, model.options);
  if (key == "vocab_size" && family_of(model) == Family::images) return false;
  return models::has_option(model.name, model.options, key);
}

ModelSizes model_sizes(const ModelConfig& model) {
  return with_paths([&] { return models::sizes(model.name, options_of(model, nullptr)); });
}

void check_options(const ModelConfig& model) {
  with_paths([&] { models::check(model.name, options_of(model, nullptr)); });
}

void try_on_meta(const ModelConfig& model, const BatchSpec& spec) {
  Init init;
  init.device = kMeta;
  const ModelPtr network = make_network(init, model, spec);
  try {
    const NoGrad no_grad;
    Rng rng(0);
    Context context;
    context.rng = &rng;
    Batch batch = shape_of_batch(spec, 2, kMeta);
    if (model.name != kSequential) {
      network->forward(Variable(std::move(batch.input)), context);
      return;
    }
    run_forward(*train::make_task(spec), *network, batch, context);
  } catch (const OutOfMemory&) {  // meta's limit: the planner says what to do
  } catch (const Error& error) {
    if (model.name == kSequential) throw ConfigError("model.modules", error.what());
    throw ConfigError("model.name", fmt::format("expected a network for samples {}, got {}: {}",
                                                spec.sample, model.name, error.what()));
  }
}

models::AdapterOptions adapter_options(const Config& config, Module& network) {
  models::AdapterOptions options = config.adapter;
  std::string head = network.head_prefix();
  if (head.empty() || config.model.head != "reset") return options;
  head.pop_back();  // the dot
  if (std::find(options.trained.begin(), options.trained.end(), head) == options.trained.end())
    options.trained.push_back(head);
  return options;
}

namespace {

ModelPtr made_network(const Config& config, const BatchSpec& spec, Device device) {
  Init init;
  init.rng = streams::kInitialWeights.rng(static_cast<uint64_t>(config.run.seed));
  init.device = device;
  const auto make = [&](Init& at) {
    const ModelPtr network = make_network(at, config.model, spec);
    if (config.model.head == "reset" && network->head_prefix().empty())
      throw ConfigError("model.head",
                        fmt::format("expected keep, since {} has no last layer of its own: its "
                                    "outputs have the weights of its embedding; got reset",
                                    config.model.name));
    const bool adapts = config.adapter.type != models::AdapterType::none;
    at_section("adapter",
               [&] { models::add_adapters(*network, at, adapter_options(config, *network)); });
    network->leave_out_frozen(adapts && config.model.weights.has_value());
    freeze_as_told(*network, config.train);
    return network;
  };
  const ModelPtr network = with_key("model.frozen", "[pack]", [&] {
    return with_key("model.frozen_layers", "[frozen_layers]",
                    [&] { return models::make_packed(make, init, config.model.packing); });
  });
  if (config.model.packing.format != ops::MatrixFormat::f32) models::reset_magnitudes(*network);
  if (config.run.has_bf16()) network->set_activations(DType::bf16);
  return network;
}

}  // namespace

ModelPtr make_model(const Config& config, const BatchSpec& spec, Device device) {
  return naming_files(config, [&] { return made_network(config, spec, device); });
}

}  // namespace frugal::apps
