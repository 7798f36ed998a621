// From a configuration to its network. models/registry.h has the networks' names and options.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/config/data/make_data.h"
#include "models/module.h"
#include "models/registry.h"

namespace frugal::apps {

constexpr const char* kSequential = "sequential";  // the network that model.modules lists

std::vector<std::string> model_names();

using models::Family;
Family family_of(const ModelConfig& model);
bool is_decoder(const Config& config);  // is the network's family Family::decoder?

// Is it one of simsiam, byol and moco_v2, which learn from two views of each picture?
bool is_self_supervised(const ModelConfig& model);

// Does the network read this key of config.model? Two keys are of other sections. "checkpointing"
// (train.checkpointing) asks whether the network has blocks, and "layer_decay" (optim.layer_decay)
// whether layers_of() (models/layer_order.h) knows its blocks. REQUIRES: a key that only some
// networks read.
bool network_reads(const ModelConfig& model, const std::string& key);

using ModelSizes = models::Sizes;
ModelSizes model_sizes(const ModelConfig& model);

// Errors (ConfigError): options that the network refuses.
void check_options(const ModelConfig& model);
// Makes the network on the device meta and runs it on two samples: a layer may say only then that
// it cannot take its input. Errors (ConfigError): at model.modules, or of networks by name at
// model.name.
void try_on_meta(const ModelConfig& model, const BatchSpec& spec);

// Fills num_classes, in_channels and vocab_size, where they are null, from what the data have.
// Errors (ConfigError): values that do not fit the data; a network for other data.
void resolve_model(Config& config, const BatchSpec& spec);

// A metric that counts pairs of classes knows those of the data. resolve_model() asks for
// train.metric alone, because a command may have no evaluation by what the data usually have.
// Errors (ConfigError): such a metric of a network with another number of outputs.
// REQUIRES: resolve_model(config, spec).
void check_metric(const Config& config, const BatchSpec& spec, const std::string& metric);

// config.adapter for this network. A last layer that starts anew is trained with the adapters.
models::AdapterOptions adapter_options(const Config& config, Module& network);

// Makes the network with initial weights and the adapters that config.adapter describes, and
// freezes what these or train.freeze say. With model.weights, files of a network with adapters hold
// what is trained alone (Module::leaves_out_frozen).
// Errors (ConfigError): those of freeze() and models::add_adapters().
// REQUIRES: resolve_model(config, spec).
std::shared_ptr<Module> make_model(const Config& config, const BatchSpec& spec, Device device);

}  // namespace frugal::apps
