// From a configuration to its network: the only table of models' names.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config/config.h"
#include "apps/config/make_data.h"
#include "models/module.h"

namespace frugal::apps {

constexpr const char* kSequential = "sequential";  // the network that model.modules lists

std::vector<std::string> model_names();

// What a network reads: images, which it classifies as a whole or pixel by pixel (segmentation), or
// in which it finds objects (detection); sequences, as a whole (encoder) or up to each token
// (decoder); graphs.
enum class Family : uint8_t { images, segmentation, detection, encoder, decoder, graph };
Family family_of(const ModelConfig& model);
bool is_decoder(const Config& config);  // is the network's family Family::decoder?

// Is it one of simsiam, byol and moco_v2, which learn from two views of each picture?
bool is_self_supervised(const ModelConfig& model);
std::vector<std::string> trunk_names();  // networks that they can train

// Does the network read this key of config.model? Two keys are of other sections. "checkpointing"
// (train.checkpointing) asks whether the network has blocks, and "layer_decay" (optim.layer_decay)
// whether layer_of() (models/layer_order.h) knows its blocks. REQUIRES: a key that only some
// networks read.
bool network_reads(const ModelConfig& model, const std::string& key);

// Which values of model.layers and model.width, and which sides of images, the network takes.
// Layers are `least_layers` and more, by `layers_step`; the others are multiples. (Other sides may
// do, too; these do with every network of the family.)
struct ModelSizes {
  int64_t least_layers = 1, layers_step = 1;
  int64_t width_step = 4;
  int64_t side_step = 4;
};
ModelSizes model_sizes(const ModelConfig& model);

// Fills num_classes, in_channels and vocab_size, where they are null, from what the data have.
// Errors (ConfigError): values that do not fit the data; a network for other data.
void resolve_model(Config& config, const BatchSpec& spec);

// Makes the network with initial weights and freezes what train.freeze names.
// Errors (ConfigError): those of freeze().
// REQUIRES: resolve_model(config, spec).
std::shared_ptr<Module> make_model(const Config& config, const BatchSpec& spec, Device device);

}  // namespace frugal::apps
