// The network that a configuration lists, model.modules: a list of layers, each an object of one
// name, such as {"conv2d": {"out_channels": 64, "kernel_size": 3}}. A value that is no object
// stands for the layer's first key, {"linear": 10}, and a text for a layer of defaults, "relu".
// Keys are named as PyTorch's arguments. docs/guide/own_network.md lists the layers.
//
// One table has all layers: a row makes a module and says what it does to the shape of a sample. So
// what is wrong is found before training.
//
// Errors (ConfigError) name the entry: "model.modules[3].conv2d.kernel_size: expected ...".
#pragma once
#include <memory>
#include <string>

#include "apps/config/config.h"
#include "apps/config/make_data.h"
#include "apps/config/make_model.h"
#include "models/init.h"

namespace frugal::apps {

Json modules_schema();  // describes the list, for validation and editors

// The key that a value stands for, "p" of "dropout"; empty: an unknown layer, or one without keys.
std::string first_key_of(const std::string& layer);

// Names, keys and values. Errors: an unknown layer or key, a key that is missing, a value out of
// range, an empty list within a list, lists too deep or too long.
void check_modules(const Json& modules, const std::string& path);

// What the network reads. One that begins with an embedding reads tokens: as a whole if it has a
// mean_pool or a first_token, else up to each token. All others read images. REQUIRES: checked.
Family family_of_modules(const Json& modules);
// Has it blocks that can be recomputed? These are its residuals and nested sequentials, or if there
// is none of these, what ends in a pool. REQUIRES: checked.
bool modules_have_blocks(const Json& modules);

// Errors: an input that a layer cannot take, outputs that are not the classes of the data; a
// network of tokens for images and so on. REQUIRES: checked modules; num_classes and vocab_size are
// there.
std::shared_ptr<Module> make_sequential(models::Init& init, const ModelConfig& model,
                                        const BatchSpec& spec);
// Makes the network on the device meta and runs it on two samples. Errors: as above.
void check_sequential(const ModelConfig& model, const BatchSpec& spec);

}  // namespace frugal::apps
