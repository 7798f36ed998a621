#include "models/sequential/sequential.h"

#include <algorithm>

#include "core/words/nearest.h"
#include "core/words/quoted.h"
#include "models/sequential/layer_list.h"
#include "models/sequential_parts.h"
#include "models/zoo/keys.h"

namespace frugal::models {
namespace layer_list {
namespace {

constexpr int kDeepest = 16;  // lists within lists

const Entry* find_entry(const std::string& name) {
  for (const Entry& entry : entries())
    if (name == entry.name) return &entry;
  return nullptr;
}

const LayerKey* find_key(const Entry& entry, const std::string& name) {
  for (const LayerKey& key : entry.keys)
    if (key.name == name) return &key;
  return nullptr;
}

[[noreturn]] void unknown_layer(const std::string& path, const std::string& name) {
  if (name == "softmax" || name == "log_softmax")
    throw OptionError(path, fmt::format("unknown layer {}: the loss takes the outputs before it, "
                                        "so leave it out",
                                        name));
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  throw OptionError(path, fmt::format("unknown layer {}; the nearest one is '{}'", in_quotes(name),
                                      nearest_name(printable(name), names)));
}

[[noreturn]] void unknown_key(const Layer& layer, const std::string& key) {
  const std::string path = layer.path + "." + printable(key);
  const std::vector<LayerKey>& keys = layer.entry->keys;
  if (keys.empty())
    throw OptionError(path, fmt::format("unknown key; {} has none", layer.entry->name));
  std::vector<std::string> names;
  for (const LayerKey& each : keys) names.push_back(each.name);
  throw OptionError(path, fmt::format("unknown key; the nearest valid key is '{}'",
                                      nearest_name(printable(key), names)));
}

// Reads one entry. Errors: those of names and keys.
Layer read_layer(const Value& given, const std::string& place) {
  const bool is_text = given.is<std::string>();
  if (!is_text && !(given.is<Value::Object>() && given.object().size() == 1))
    throw OptionError(place,
                      fmt::format("expected one layer, such as {{\"linear\": 10}} or "
                                  "\"relu\", got {}",
                                  given.is<Value::Object>()
                                      ? fmt::format("an object of {} keys", given.object().size())
                                      : std::string(type_name(given))));
  const std::string name = is_text ? given.text() : given.object()[0].first;
  const Value own = is_text ? Value() : given.object()[0].second;
  Layer layer;
  layer.entry = find_entry(name);
  if (layer.entry == nullptr) unknown_layer(place, name);
  layer.path = place + "." + name;
  const std::vector<LayerKey>& keys = layer.entry->keys;
  for (const LayerKey& key : keys) layer.values[key.name] = key.usual;
  std::vector<std::string> there;
  if (own.is<Value::Object>()) {
    for (const auto& [key, value] : own.object()) {
      if (find_key(*layer.entry, key) == nullptr) unknown_key(layer, key);
      layer.values[key] = value;
      there.push_back(key);
    }
  } else if (!own.is_nothing()) {
    if (keys.empty())
      throw OptionError(layer.path, fmt::format("expected no value, got {}", shown(own)));
    layer.values[keys[0].name] = own;
    layer.is_short = true;
    there.push_back(keys[0].name);
  }
  for (const LayerKey& key : keys)
    if (key.required && std::find(there.begin(), there.end(), key.name) == there.end())
      throw OptionError(layer.path + "." + key.name,
                        fmt::format("expected {}, got none", text_of(key.range)));
  return layer;
}

void check_list(const Value::List& modules, const std::string& path, int depth, int64_t& count);

void check_layer(const Layer& layer, int depth, int64_t& count) {
  for (const LayerKey& key : layer.entry->keys) {
    const Value& value = layer.values.at(key.name);
    const std::string path = layer.path_of(key.name.c_str());
    if (!key.required && value == key.usual) continue;
    if (key.also != nullptr && value == key.also) continue;
    check_range(key.range, value, path);
    if (key.range.may_be_layers) check_list(value.list(), path, depth + 1, count);
  }
}

void check_list(const Value::List& modules, const std::string& path, int depth, int64_t& count) {
  if (depth > kDeepest)
    throw OptionError(path, fmt::format("expected at most {} lists within lists", kDeepest));
  for (size_t i = 0; i < modules.size(); ++i) {
    const Layer layer = read_layer(modules[i], fmt::format("{}[{}]", path, i));
    const int64_t before = count++;
    check_layer(layer, depth, count);
    if (std::string_view(layer.entry->name) == "repeat")
      count = before + (count - before) * layer.integer("times");
    if (count > kMostLayers)
      throw OptionError(layer.path, fmt::format("expected at most {} layers in all", kMostLayers));
  }
}

// The layers of a list, where a repeat stands for its copies.
void unroll(const Value::List& modules, const std::string& path, std::vector<Layer>& all) {
  for (size_t i = 0; i < modules.size(); ++i) {
    Layer layer = read_layer(modules[i], fmt::format("{}[{}]", path, i));
    if (std::string_view(layer.entry->name) != "repeat") {
      all.push_back(std::move(layer));
      continue;
    }
    for (int64_t copy = 0; copy < layer.integer("times"); ++copy)
      unroll(layer.values.at("modules").list(), layer.path_of("modules"), all);
  }
}
}  // namespace

std::vector<Layer> unrolled(const Value::List& modules, const std::string& path) {
  std::vector<Layer> all;
  unroll(modules, path, all);
  return all;
}

namespace {

bool is_named(const Layer& layer, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), layer.entry->name) != names.end();
}

// ---- the network
// Does the list have a layer of these names, also in a nested sequential?
bool has_named(const Value::List& modules, const std::string& path,
               std::initializer_list<std::string_view> names) {
  for (const Layer& layer : unrolled(modules, path)) {
    if (is_named(layer, names)) return true;
    if (is_named(layer, {"sequential"}) &&
        has_named(layer.values.at("modules").list(), layer.path_of("modules"), names))
      return true;
  }
  return false;
}

constexpr const char* kPath = "modules";

// The blocks of a list: see layers_have_blocks(). A relu behind a residual is in its block.
std::vector<models::Sequential::Block> blocks_of(const std::vector<Layer>& layers) {
  std::vector<models::Sequential::Block> blocks;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!is_named(layers[i], {"residual", "sequential"})) continue;
    const bool with_relu = i + 1 < layers.size() && is_named(layers[i], {"residual"}) &&
                           is_named(layers[i + 1], {"relu"});
    blocks.push_back({i, i + (with_relu ? 2 : 1)});
  }
  if (!blocks.empty()) return blocks;
  size_t begin = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (!is_named(layers[i], {"max_pool2d", "avg_pool2d"})) continue;
    blocks.push_back({begin, i + 1});
    begin = i + 1;
  }
  return blocks;
}

Flow flow_of(const SequentialOptions& options) {
  const std::vector<int64_t>& sample = options.sample;
  // Texts of a batch are as long as its longest one, and a prompt may have any length.
  if (options.ids) return {.kind = Flow::ids};
  if (sample.size() == 3)
    return {.kind = Flow::image, .h = sample[0], .w = sample[1], .c = sample[2]};
  int64_t features = 1;
  for (const int64_t extent : sample) features *= extent;
  return {.kind = Flow::rows, .c = features};
}

void check_output(const Layer& last, const Flow& flow, const Build& build) {
  Flow wanted{.kind = Flow::rows, .c = build.options.num_classes};
  if (build.family == Family::decoder) wanted.kind = Flow::tokens;
  if (flow == wanted) return;
  throw OptionError(last.path,
                    fmt::format("expected {} from the last layer, {}; got {}", text_of(wanted),
                                build.family == Family::decoder
                                    ? "for each token one number for each token of the vocabulary"
                                    : "one number for each class",
                                text_of(flow)));
}

}  // namespace
}  // namespace layer_list

using namespace layer_list;

std::vector<LayerKind> layer_kinds() {
  std::vector<LayerKind> all;
  for (const Entry& entry : entries()) all.push_back({entry.name, entry.keys});
  return all;
}

std::string first_key_of(const std::string& layer) {
  const Entry* entry = find_entry(layer);
  return entry == nullptr || entry->keys.empty() ? "" : entry->keys[0].name;
}

void check_layers(const Value::List& modules, const std::string& path) {
  int64_t count = 0;
  check_list(modules, path, 1, count);
}

Family family_of_layers(const Value::List& modules) {
  if (modules.empty()) return Family::images;
  const std::vector<Layer> layers = unrolled(modules, kPath);
  if (!is_named(layers[0], {"embedding"})) return Family::images;
  return has_named(modules, kPath, {"mean_pool", "first_token"}) ? Family::encoder
                                                                 : Family::decoder;
}

bool layers_have_blocks(const Value::List& modules) {
  return !modules.empty() && !blocks_of(unrolled(modules, kPath)).empty();
}

void SequentialOptions::set_modules(SequentialOptions& options, const Value& modules) {
  check_layers(modules.list(), kPath);
  options.modules = modules.list();
}

std::vector<Option<SequentialOptions>> SequentialOptions::list() {
  using S = SequentialOptions;
  return {{{"modules",
            {.may_be_layers = true, .longest = kMostLayers},
            "sequential: its layers in order, each a name and its keys, such as "
            "{\"linear\": {\"out_features\": 10}}; docs/guide/own_network.md lists them."},
           set_modules,
           Value::List()},
          {{"sample", range::integers(0, kMostFeatures, 0, 8), "What it reads.", Key::data},
           &S::sample},
          {{"ids", range::flag(), "Whether it reads token ids.", Key::data}, &S::ids},
          {{"target", range::choice("any, one, each_token"), "Outputs for a text.", Key::data},
           &S::target},
          {keys::kNumClasses, &S::num_classes},
          {keys::kVocabSize, &S::vocab_size},
          {{"vocabulary", range::integer(0, 1 << 24), "Ids of the data are below.", Key::data},
           &S::vocabulary}};
}

ModulePtr make_sequential(Init& init, const SequentialOptions& options) {
  if (options.modules.empty())
    throw OptionError(kPath,
                      "expected the layers of the network, such as [\"flatten\", "
                      "{\"linear\": 10}], got []");
  if (options.sample.empty())
    throw OptionError("sample", "expected an image [H, W, C], a row [F] or token ids [T], got []");
  check_layers(options.modules, kPath);
  const std::vector<Layer> layers = unrolled(options.modules, kPath);
  Build build(init, options);
  if (options.ids && build.family == Family::images)
    throw OptionError(layers[0].path,
                      "expected an embedding as the first layer, since the data are texts");
  const bool each_token = options.target == TextTarget::each_token;
  if (options.ids && options.target != TextTarget::any &&
      each_token != (build.family == Family::decoder))
    throw OptionError(
        kPath, each_token ? "expected no mean_pool and no first_token, since these data ask "
                            "for an output at each token"
                          : "expected a mean_pool or a first_token, since these data ask for "
                            "one output of each text");
  Flow flow = flow_of(options);
  std::vector<ModulePtr> modules = build.all(layers, flow);
  check_output(layers.back(), flow, build);
  std::vector<models::Sequential::Block> blocks = blocks_of(layers);
  const auto head = std::dynamic_pointer_cast<Linear>(modules.back());
  if (build.family == Family::decoder && head == nullptr)
    throw OptionError(layers.back().path,
                      "expected a linear as the last layer, whose outputs are "
                      "the next token's");
  if (head == nullptr) {
    const auto network = chain(modules);
    network->set_blocks(std::move(blocks));
    return network;
  }
  modules.pop_back();
  if (build.family != Family::decoder)
    return std::make_shared<SequentialClassifier>(modules, head, std::move(blocks));
  int64_t longest = options.sample[0];
  for (const Layer& layer : layers)
    if (is_named(layer, {"position_embedding"}) && layer.has("num_embeddings"))
      longest = layer.integer("num_embeddings");
  return std::make_shared<SequentialLanguageModel>(modules, head, std::move(blocks), longest);
}

}  // namespace frugal::models
