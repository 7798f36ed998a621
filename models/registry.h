// The networks by their names, with the options that each has (models/option.h):
//
//   Init init;
//   auto network = models::make("resnet50", {{"num_classes", 10}, {"width", 32}}, init);
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/init.h"
#include "models/module.h"
#include "models/option.h"

namespace frugal::models {

// What is said of all networks of a kind.
struct Traits {
  Family family = Family::images;
  const char* who = "";         // a name for the kind: "the CIFAR ResNets"
  const char* group = "";       // a name for several kinds: "ResNets"; empty: none
  bool reads_rows = false;      // takes rows [N, F] as well as images
  bool has_blocks = false;      // Context::checkpointed_blocks finds blocks to recompute
  bool has_order = false;       // layers_of() (models/layer_order.h) knows its blocks
  bool gives_features = false;  // may be the trunk of those that learn from views
  bool learns_from_views = false;
  int64_t first_position = 0;      // where in its table of positions a sequence begins
  bool lacks_token_types = false;  // an encoder that does not tell the first of two texts from the
                                   // second
};

// A network under one name.
struct Network {
  std::string name;
  Traits traits;
  std::vector<Key> keys;  // its own options; keys_of() adds those of a trunk

  // Functions that make() and others call, with the network's own options.
  std::function<std::shared_ptr<Module>(const Options&, Init&)> make;
  std::function<Sizes(const Options&)> sizes;  // Errors: make()'s, of options
  std::function<Value(const std::string& key)> usual;
  std::function<Family(const Options&)> family;
  std::function<bool(const Options&)> has_blocks;
};

const std::vector<Network>& networks();           // in the order in which help lists them
const Network& network(const std::string& name);  // Errors: an unknown name
bool is_network(const std::string& name);
std::vector<std::string> trunk_names();  // networks that may learn from views

// Every option that is not the data's (Key::Default), once, in the order of networks().
const std::vector<Key>& all_keys();
// The default that all networks with this option have. REQUIRES: a key of all_keys() that is
// `fixed`.
Value default_of(const std::string& key);
// Who has the option: "BERT, GPT-2 and gat".
std::string readers_of(const std::string& key);

// The options that the network has. If it learns from views, options["trunk"] counts.
std::vector<Key> keys_of(const std::string& name, const Options& options = {});
bool has_option(const std::string& name, const Options& options, const std::string& key);

// What the network reads, and whether it has blocks to recompute. What a list of layers is, its
// layers say: options["modules"], which check() lets through.
Family family_of(const std::string& name, const Options& options);
bool has_blocks(const std::string& name, const Options& options);

// Makes the network; an option that is not given has the default of the network of this name.
// Errors: an unknown name; OptionError for an option that the network does not have and for a value
// that it cannot have, at "resnet50.width".
std::shared_ptr<Module> make(const std::string& name, const Options& options, Init& init);

// Errors: those of make() about options, without making a network.
void check(const std::string& name, const Options& options);

// Which sizes the network takes, whatever its option "layers". Errors: as check().
Sizes sizes(const std::string& name, const Options& options);

}  // namespace frugal::models
