// The table of layers of a Sequential network that is a list, and what building one needs. Internal
// to sequential.cpp and layers.cpp.
#pragma once
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/layers.h"
#include "models/sequential/sequential.h"

namespace frugal::models::layer_list {

using ModulePtr = std::shared_ptr<Module>;

constexpr int64_t kMostWeights = int64_t{1} << 34;
constexpr int64_t kMostFeatures = int64_t{1} << 30;

// ---- what flows from layer to layer: the shape of a sample
struct Flow {
  enum Kind : uint8_t { image, tokens, rows, ids };
  Kind kind = image;
  int64_t h = 0, w = 0;  // image
  int64_t t = 0;         // tokens and ids; 0: from batch to batch another number
  int64_t c = 0;         // channels, of rows features
  bool varies() const { return (kind == tokens || kind == ids) && t == 0; }
  int64_t places() const { return kind == image ? h * w : kind == tokens ? t : 1; }
};
bool operator==(const Flow& a, const Flow& b);
std::string text_of(const Flow& flow);

// ---- one layer of a list
class Build;
struct Entry;

struct Layer {
  const Entry* entry = nullptr;
  std::string path;  // "modules[3].conv2d"
  Options values;    // every key
  bool is_short = false;

  std::string path_of(const char* key) const;
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw OptionError(key == nullptr ? path : path_of(key), what);
  }
  bool has(const char* key) const { return !values.at(key).is_nothing(); }
  int64_t integer(const char* key) const { return values.at(key).integer(); }
  double real(const char* key) const { return values.at(key).number(); }
  bool flag(const char* key) const { return values.at(key).flag(); }
  Pair two(const char* key) const {
    const Value& value = values.at(key);
    if (value.is_number()) return {value.integer(), value.integer()};
    return {value.list()[0].integer(), value.list()[1].integer()};
  }
  // Errors: another input.
  void takes(const Flow& flow, std::initializer_list<Flow::Kind> kinds) const;
  // Errors: the key is given and not `value`.
  void agrees(const char* key, int64_t value, const Flow& flow) const {
    if (has(key) && integer(key) != value)
      fail(key, fmt::format("expected {}, of its input, {}, or no such key; got {}", value,
                            text_of(flow), integer(key)));
  }
};

struct Entry {
  const char* name;
  std::vector<LayerKey> keys;
  // Makes the layer and turns the shape of its input into that of its output.
  ModulePtr (*make)(Build& build, const Layer& layer, Flow& flow);
};

const std::vector<Entry>& entries();

// The layers of a list, where a repeat stands for its copies. REQUIRES: check_layers().
std::vector<Layer> unrolled(const Value::List& modules, const std::string& path);

// ---- from lists to modules
class Build {
 public:
  Build(Init& own_init, const SequentialOptions& own_options)
      : init(own_init), options(own_options), family(family_of_layers(own_options.modules)) {}

  std::vector<ModulePtr> all(const std::vector<Layer>& layers, Flow& flow) {
    std::vector<ModulePtr> modules;
    for (const Layer& layer : layers) modules.push_back(layer.entry->make(*this, layer, flow));
    return modules;
  }
  std::vector<ModulePtr> list(const Layer& layer, const char* key, Flow& flow) {
    return all(unrolled(layer.values.at(key).list(), layer.path_of(key)), flow);
  }
  // Errors: more weights than a tensor should have.
  void check_weights(const Layer& layer, std::initializer_list<int64_t> extents) const {
    double count = 1;
    for (const int64_t extent : extents) count *= static_cast<double>(extent);
    if (count > static_cast<double>(kMostWeights))
      layer.fail(nullptr,
                 fmt::format("expected at most {} weights, got {:.3g}", kMostWeights, count));
  }

  Init& init;
  const SequentialOptions& options;
  Family family;
};

std::shared_ptr<Sequential> chain(const std::vector<ModulePtr>& modules);

}  // namespace frugal::models::layer_list
