// From a configuration to its network: the only table of models' names.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/config.h"
#include "apps/make_data.h"
#include "models/module.h"

namespace frugal::apps {

std::vector<std::string> model_names();

// What a network reads: images; sequences, as a whole (encoder) or up to each token (decoder);
// graphs.
enum class Family : uint8_t { images, encoder, decoder, graph };
Family family_of(const std::string& model);

// Errors (ConfigError): a key of config.model is not as by default, and the network does not read
// it.
void check_model_keys(const Config& config);

// Fills num_classes, in_channels and vocab_size, where they are null, from what the data have.
// Errors (ConfigError): values that do not fit the data; a network for other data; those of
// check_model_keys().
void resolve_model(Config& config, const BatchSpec& spec);

// REQUIRES: resolve_model(config, spec).
std::shared_ptr<Module> make_model(const Config& config, const BatchSpec& spec, Device device);

}  // namespace frugal::apps
