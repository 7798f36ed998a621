// A network that is a list of layers, each an object of one name, such as
// {"conv2d": {"out_channels": 64, "kernel_size": 3}}. A value that is no object stands for the
// layer's first key, {"linear": 10}, and a text for a layer of defaults, "relu". Keys are named as
// PyTorch's arguments. docs/guide/own_network.md lists the layers.
//
//   Init init;
//   auto network = models::make_sequential(
//       init, {.modules = {layer("conv2d", {{"out_channels", 8}, {"kernel_size", 3}}), "relu",
//                          "mean_pool", layer("linear", 10)},
//              .sample = {28, 28, 1}});
//
// One table has all layers: a row makes a module and says what it does to the shape of a sample. So
// what is wrong is found before training.
//
// Errors (OptionError) name the entry: "modules[3].conv2d.kernel_size: expected ...".
#pragma once
#include <concepts>
#include <memory>
#include <string>
#include <vector>

#include "models/init.h"
#include "models/module.h"
#include "models/option.h"

namespace frugal::models {

constexpr int64_t kMostLayers = 1024;  // in a list, and in the whole network

// One layer: its name and its keys, or the value that stands for its first key.
inline Value layer(const char* name, Value::Object keys) {
  return Value::Object{{name, std::move(keys)}};
}
template <std::convertible_to<Value> T>
Value layer(const char* name, T value) {
  return Value::Object{{name, Value(std::move(value))}};
}

// What may be asked of the outputs of a network that reads token ids.
enum class TextTarget : uint8_t { any, one, each_token };

struct SequentialOptions {
  Value::List modules;
  // What the network reads: an image [H, W, C], a row [F], or token ids [T], where T is the
  // longest.
  std::vector<int64_t> sample{224, 224, 3};
  bool ids = false;  // token ids, and not a row
  TextTarget target = TextTarget::any;
  int64_t num_classes = 10;  // outputs
  int64_t vocab_size = 0;    // rows of an embedding that says no number
  int64_t vocabulary = 0;    // ids of the data are below

  static void set_modules(SequentialOptions& options, const Value& modules);
  static Published<SequentialOptions> published() { return {{"sequential", {}}}; }
  static std::vector<Option<SequentialOptions>> list();
};

// A key of a layer.
struct LayerKey {
  std::string name;
  Range range;
  Value usual = {};  // what it is where it is not given
  bool required = false;
  const char* also = nullptr;  // one text that the range does not have
};
// The layers by their names, with their keys. The first key is the one that a value stands for.
struct LayerKind {
  const char* name;
  std::vector<LayerKey> keys;
};
std::vector<LayerKind> layer_kinds();
// The key that a value stands for, "p" of "dropout"; empty: an unknown layer, or one without keys.
std::string first_key_of(const std::string& layer);

// Names, keys and values. Errors: an unknown layer or key, a key that is missing, a value out of
// range, an empty list within a list, lists too deep or too long.
void check_layers(const Value::List& modules, const std::string& path);

// What the network reads. One that begins with an embedding reads tokens: as a whole if it has a
// mean_pool or a first_token, else up to each token. All others read images. REQUIRES: checked.
Family family_of_layers(const Value::List& modules);
// Has it blocks that can be recomputed? These are its residuals and nested sequentials, or if there
// is none of these, what ends in a pool. REQUIRES: checked.
bool layers_have_blocks(const Value::List& modules);

// Errors: check_layers(); an input that a layer cannot take; outputs that are not num_classes; a
// network of tokens for images and so on.
std::shared_ptr<Module> make_sequential(Init& init, const SequentialOptions& options);

}  // namespace frugal::models
