#include "apps/config/sequential_config.h"

#include <algorithm>

#include "apps/config/config_table.h"
#include "apps/config/nearest.h"
#include "apps/config/value_named.h"
#include "apps/config/value_schema.h"
#include "autograd/record.h"
#include "core/quoted.h"
#include "models/activations.h"
#include "models/sequential_parts.h"
#include "models/volume_layers.h"
#include "train/tasks/make_task.h"
#include "train/training_step.h"

namespace frugal::apps {
namespace {

using models::Init;
using ModulePtr = std::shared_ptr<Module>;

constexpr int64_t kMostModules = 1024;  // in a list, and in the whole network
constexpr int kDeepest = 16;            // lists within lists
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

bool operator==(const Flow& a, const Flow& b) {
  return a.kind == b.kind && a.h == b.h && a.w == b.w && a.t == b.t && a.c == b.c;
}

std::string text_of(const Flow& flow) {
  const std::string count = flow.t == 0 ? "T" : fmt::format("{}", flow.t);
  switch (flow.kind) {
    case Flow::image:
      return fmt::format("an image [{}, {}, {}]", flow.h, flow.w, flow.c);
    case Flow::tokens:
      return fmt::format("tokens [{}, {}]", count, flow.c);
    case Flow::rows:
      return fmt::format("a row [{}]", flow.c);
    case Flow::ids:
      return fmt::format("token ids [{}]", count);
  }
  return "";
}

// ---- keys of layers
struct Key {
  std::string name;
  Json schema;
  Json usual;  // what it is where it is not given
  bool required = false;
  bool list = false;      // the value is a list of modules
  std::string also = {};  // one text that the schema does not show
};

using schema::boolean;
using schema::integer;
using schema::number;
using schema::positive;

Json one_of_types(std::initializer_list<const char*> types, int64_t lo, int64_t hi) {
  Json schema = {{"type", types}, {"minimum", lo}, {"maximum", hi}};
  schema["items"] = {{"type", "integer"}, {"minimum", lo}, {"maximum", hi}};
  schema["minItems"] = schema["maxItems"] = 2;
  return schema;
}
Json integer_or_null(int64_t lo, int64_t hi) {
  return {{"type", {"integer", "null"}}, {"minimum", lo}, {"maximum", hi}};
}
// height and width, or one number for both
Json pair(int64_t lo, int64_t hi) { return one_of_types({"integer", "array"}, lo, hi); }
Json pair_or_null(int64_t lo, int64_t hi) {
  return one_of_types({"integer", "array", "null"}, lo, hi);
}
Json probability() { return {{"type", "number"}, {"minimum", 0.0}, {"exclusiveMaximum", 1.0}}; }

constexpr int64_t kWide = 1 << 20, kSide = 1 << 14;

Key needed(const char* name, Json schema) { return {name, std::move(schema), nullptr, true}; }
Key usual(const char* name, Json schema, Json value) {
  return {name, std::move(schema), std::move(value)};
}
// A number of the input that PyTorch asks for: it may be there, and must be right.
Key given(const char* name) { return usual(name, integer_or_null(1, kMostFeatures), nullptr); }
Key list_of_modules(const char* name, bool required) {
  return {name,
          {{"type", "array"}, {"minItems", required ? 1 : 0}, {"maxItems", kMostModules}},
          Json::array(),
          required,
          true};
}

// ---- one layer of a list
class Build;
struct Entry;

struct Layer {
  const Entry* entry = nullptr;
  std::string path;  // "model.modules[3].conv2d"
  Json values;       // every key
  bool is_short = false;

  std::string path_of(const char* key) const;
  [[noreturn]] void fail(const char* key, const std::string& what) const {
    throw ConfigError(key == nullptr ? path : path_of(key), what);
  }
  bool has(const char* key) const { return !values.at(key).is_null(); }
  int64_t integer(const char* key) const {  // 1e3 is one, too
    return static_cast<int64_t>(values.at(key).get<double>());
  }
  double real(const char* key) const { return values.at(key).get<double>(); }
  bool flag(const char* key) const { return values.at(key).get<bool>(); }
  Pair two(const char* key) const {
    const Json& value = values.at(key);
    if (!value.is_array()) return {integer(key), integer(key)};
    return {static_cast<int64_t>(value[0].get<double>()),
            static_cast<int64_t>(value[1].get<double>())};
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
  std::vector<Key> keys;
  // Makes the layer and turns the shape of its input into that of its output.
  ModulePtr (*make)(Build& build, const Layer& layer, Flow& flow);
};

const std::vector<Entry>& entries();

std::string Layer::path_of(const char* key) const {
  return is_short && entry->keys[0].name == key ? path : path + "." + key;
}

const Entry* find_entry(const std::string& name) {
  for (const Entry& entry : entries())
    if (name == entry.name) return &entry;
  return nullptr;
}

const Key* find_key(const Entry& entry, const std::string& name) {
  for (const Key& key : entry.keys)
    if (key.name == name) return &key;
  return nullptr;
}

[[noreturn]] void unknown_layer(const std::string& path, const std::string& name) {
  if (name == "softmax" || name == "log_softmax")
    throw ConfigError(path, fmt::format("unknown layer {}: the loss takes the outputs before it, "
                                        "so leave it out",
                                        name));
  std::vector<std::string> names;
  for (const Entry& entry : entries()) names.emplace_back(entry.name);
  throw ConfigError(path, fmt::format("unknown layer {}; the nearest one is '{}'", in_quotes(name),
                                      nearest_name(printable(name), names)));
}

// Reads one entry. Errors: those of names and keys; of values only with `checking`.
Layer read_layer(const Json& given, const std::string& place) {
  if (!given.is_string() && !(given.is_object() && given.size() == 1))
    throw ConfigError(
        place, fmt::format("expected one layer, such as {{\"linear\": 10}} or \"relu\", got {}",
                           given.is_object() ? fmt::format("an object of {} keys", given.size())
                                             : std::string(given.type_name())));
  const std::string name =
      given.is_string() ? given.get<std::string>() : given.items().begin().key();
  Layer layer;
  layer.entry = find_entry(name);
  if (layer.entry == nullptr) unknown_layer(place, name);
  layer.path = place + "." + name;
  const std::vector<Key>& keys = layer.entry->keys;
  const Json own = given.is_string() ? Json(nullptr) : *given.begin();
  layer.values = Json::object();
  for (const Key& key : keys) layer.values[key.name] = key.usual;
  if (own.is_object()) {
    for (const auto& [key, value] : own.items()) {
      if (find_key(*layer.entry, key) == nullptr) {
        if (keys.empty())
          throw ConfigError(layer.path + "." + printable(key),
                            fmt::format("unknown key; {} has none", name));
        std::vector<std::string> names;
        for (const Key& each : keys) names.push_back(each.name);
        throw ConfigError(layer.path + "." + printable(key),
                          fmt::format("unknown key; the nearest valid key is '{}'",
                                      nearest_name(printable(key), names)));
      }
      layer.values[key] = value;
    }
  } else if (!own.is_null()) {
    if (keys.empty())
      throw ConfigError(layer.path,
                        fmt::format("expected no value, got {}", printable(own.dump())));
    layer.values[keys[0].name] = own;
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool there = own.is_object() ? own.contains(keys[i].name) : i == 0 && !own.is_null();
    if (keys[i].required && !there)
      throw ConfigError(layer.path + "." + keys[i].name,
                        fmt::format("expected {}, got none", describe_schema(keys[i].schema)));
  }
  layer.is_short = !own.is_object() && !own.is_null();
  return layer;
}

void check_list(const Json& modules, const std::string& path, int depth, int64_t& count);

void check_layer(const Layer& layer, int depth, int64_t& count) {
  for (const Key& key : layer.entry->keys) {
    const Json& value = layer.values.at(key.name);
    const std::string path = layer.path_of(key.name.c_str());
    if (!key.required && value == key.usual) continue;
    if (!key.also.empty() && value == key.also) continue;
    Json schema = key.schema;
    if (key.list) schema["items"] = {{"type", {"object", "string"}}};
    validate(schema, value, path);
    if (key.list) check_list(value, path, depth + 1, count);
  }
}

void check_list(const Json& modules, const std::string& path, int depth, int64_t& count) {
  if (depth > kDeepest)
    throw ConfigError(path, fmt::format("expected at most {} lists within lists", kDeepest));
  for (size_t i = 0; i < modules.size(); ++i) {
    const Layer layer = read_layer(modules[i], fmt::format("{}[{}]", path, i));
    const int64_t before = count++;
    check_layer(layer, depth, count);
    if (std::string_view(layer.entry->name) == "repeat")
      count = before + (count - before) * layer.integer("times");
    if (count > kMostModules)
      throw ConfigError(layer.path, fmt::format("expected at most {} layers in all", kMostModules));
  }
}

// The layers of a list, where a repeat stands for its copies.
void unroll(const Json& modules, const std::string& path, std::vector<Layer>& all) {
  for (size_t i = 0; i < modules.size(); ++i) {
    Layer layer = read_layer(modules[i], fmt::format("{}[{}]", path, i));
    if (std::string_view(layer.entry->name) != "repeat") {
      all.push_back(std::move(layer));
      continue;
    }
    for (int64_t copy = 0; copy < layer.integer("times"); ++copy)
      unroll(layer.values.at("modules"), layer.path_of("modules"), all);
  }
}
std::vector<Layer> unrolled(const Json& modules, const std::string& path) {
  std::vector<Layer> all;
  unroll(modules, path, all);
  return all;
}

bool is_named(const Layer& layer, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), layer.entry->name) != names.end();
}

// ---- from lists to modules
class Build {
 public:
  Build(Init& own_init, const ModelConfig& own_model, const BatchSpec& own_spec)
      : init(own_init),
        model(own_model),
        spec(own_spec),
        family(family_of_modules(own_model.modules)) {}

  std::vector<ModulePtr> all(const std::vector<Layer>& layers, Flow& flow) {
    std::vector<ModulePtr> modules;
    for (const Layer& layer : layers) modules.push_back(layer.entry->make(*this, layer, flow));
    return modules;
  }
  std::vector<ModulePtr> list(const Layer& layer, const char* key, Flow& flow) {
    return all(unrolled(layer.values.at(key), layer.path_of(key)), flow);
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
  const ModelConfig& model;
  const BatchSpec& spec;
  Family family;
};

void Layer::takes(const Flow& flow, std::initializer_list<Flow::Kind> kinds) const {
  if (std::find(kinds.begin(), kinds.end(), flow.kind) != kinds.end()) return;
  std::vector<std::string> texts;
  for (const Flow::Kind kind : kinds)
    texts.emplace_back(kind == Flow::image    ? "an image [height, width, channels]"
                       : kind == Flow::tokens ? "tokens [T, channels]"
                       : kind == Flow::rows   ? "a row [features]"
                                              : "token ids [T]");
  const char* hint = "";
  const auto takes_kind = [&](Flow::Kind kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  };
  if (flow.kind == Flow::ids)
    hint = "; an embedding makes tokens of them";
  else if (flow.kind == Flow::image && takes_kind(Flow::rows))
    hint = "; a flatten or mean_pool before it makes a row of that";
  else if (flow.kind == Flow::image && takes_kind(Flow::tokens))
    hint = "; tokens or patch_embedding makes tokens of that";
  fail(nullptr, fmt::format("expected {} as its input, got {}{}", fmt::join(texts, " or "),
                            text_of(flow), hint));
}

// ---- convolutions and pools
// The extents of what windows of `kernel` make of an image.
void slide(const Layer& layer, Flow& flow, Pair kernel, Pair stride, Pair padding, Pair dilation) {
  const char* const names[] = {"height", "width"};
  int64_t* const extents[] = {&flow.h, &flow.w};
  const Flow before = flow;
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t padded = *extents[axis] + 2 * padding[axis];
    const int64_t covered = dilation[axis] * (kernel[axis] - 1) + 1;
    if (covered > padded)
      layer.fail("kernel_size",
                 fmt::format("expected windows of at most {}, the {} of its input, {}{}; got {}",
                             padded, names[axis], text_of(before),
                             padding[axis] > 0 ? ", with its padding" : "", covered));
    *extents[axis] = (padded - covered) / stride[axis] + 1;
  }
}

ModulePtr make_conv2d(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  layer.agrees("in_channels", flow.c, flow);
  const int64_t in = flow.c, out = layer.integer("out_channels");
  const Pair kernel = layer.two("kernel_size");
  Conv2dOptions options;
  options.stride = layer.two("stride");
  options.dilation = layer.two("dilation");
  options.groups = layer.integer("groups");
  if (layer.values.at("padding") == "same") {
    for (size_t axis = 0; axis < 2; ++axis) {
      const int64_t covered = options.dilation[axis] * (kernel[axis] - 1);
      if (covered % 2 != 0 || options.stride[axis] != 1)
        layer.fail("padding",
                   "expected numbers, since \"same\" takes odd kernels and stride 1; "
                   "got \"same\"");
      options.padding[axis] = covered / 2;
    }
  } else {
    options.padding = layer.two("padding");
  }
  if (in % options.groups != 0 || out % options.groups != 0)
    layer.fail("groups", fmt::format("expected a divisor of {} and {}, its channels, got {}", in,
                                     out, options.groups));
  build.check_weights(layer, {out, kernel[0], kernel[1], in / options.groups});
  slide(layer, flow, kernel, options.stride, options.padding, options.dilation);
  flow.c = out;
  return std::make_shared<models::Conv2d>(build.init, in, out, kernel, options, layer.flag("bias"));
}

Pool2dOptions pool_options(const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  Pool2dOptions options;
  options.kernel = layer.two("kernel_size");
  options.stride = layer.has("stride") ? layer.two("stride") : options.kernel;
  options.padding = layer.two("padding");
  for (size_t axis = 0; axis < 2; ++axis)
    if (2 * options.padding[axis] > options.kernel[axis])
      layer.fail("padding", fmt::format("expected at most half of kernel_size {}, got {}",
                                        options.kernel[axis], options.padding[axis]));
  slide(layer, flow, options.kernel, options.stride, options.padding, {1, 1});
  return options;
}

ModulePtr make_max_pool2d(Build&, const Layer& layer, Flow& flow) {
  return std::make_shared<models::MaxPool2d>(pool_options(layer, flow));
}

ModulePtr make_avg_pool2d(Build&, const Layer& layer, Flow& flow) {
  Pool2dOptions options = pool_options(layer, flow);
  options.count_include_pad = layer.flag("count_include_pad");
  return std::make_shared<models::AvgPool2d>(options);
}

ModulePtr make_adaptive_avg_pool2d(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  const Pair size = layer.two("output_size");
  flow.h = size[0];
  flow.w = size[1];
  return std::make_shared<models::AdaptiveAvgPool2d>(size[0], size[1]);
}

ModulePtr make_adaptive_max_pool2d(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  const Pair size = layer.two("output_size");
  flow.h = size[0];
  flow.w = size[1];
  return std::make_shared<models::AdaptiveMaxPool2d>(size[0], size[1]);
}

// Errors: a number of tokens that changes. The mask of a batch of texts would not fit behind
// windows.
void check_fixed(const Layer& layer, const Flow& flow) {
  if (flow.varies())
    layer.fail(nullptr, fmt::format("expected a fixed number of tokens, got {}, whose T changes "
                                    "from batch to batch",
                                    text_of(flow)));
}

// The number of tokens that windows make of tokens.
void slide_tokens(const Layer& layer, Flow& flow, int64_t kernel, int64_t stride, int64_t padding,
                  int64_t dilation) {
  check_fixed(layer, flow);
  const int64_t padded = flow.t + 2 * padding, covered = dilation * (kernel - 1) + 1;
  if (covered > padded)
    layer.fail("kernel_size", fmt::format("expected windows of at most {}, the length of its "
                                          "input, {}{}; got {}",
                                          padded, text_of(flow),
                                          padding > 0 ? ", with its padding" : "", covered));
  flow.t = (padded - covered) / stride + 1;
}

ModulePtr make_conv1d(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  layer.agrees("in_channels", flow.c, flow);
  const int64_t in = flow.c, out = layer.integer("out_channels");
  const int64_t kernel = layer.integer("kernel_size");
  const models::Conv1dOptions options{layer.integer("stride"), layer.integer("padding"),
                                      layer.integer("dilation"), layer.integer("groups")};
  if (in % options.groups != 0 || out % options.groups != 0)
    layer.fail("groups", fmt::format("expected a divisor of {} and {}, its channels, got {}", in,
                                     out, options.groups));
  build.check_weights(layer, {out, kernel, in / options.groups});
  slide_tokens(layer, flow, kernel, options.stride, options.padding, options.dilation);
  flow.c = out;
  return std::make_shared<models::Conv1d>(build.init, in, out, kernel, options, layer.flag("bias"));
}

Pool1dOptions pool1d_options(const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  Pool1dOptions options;
  options.kernel = layer.integer("kernel_size");
  options.stride = layer.has("stride") ? layer.integer("stride") : options.kernel;
  options.padding = layer.integer("padding");
  if (2 * options.padding > options.kernel)
    layer.fail("padding", fmt::format("expected at most half of kernel_size {}, got {}",
                                      options.kernel, options.padding));
  slide_tokens(layer, flow, options.kernel, options.stride, options.padding, 1);
  return options;
}

ModulePtr make_max_pool1d(Build&, const Layer& layer, Flow& flow) {
  return std::make_shared<models::MaxPool1d>(pool1d_options(layer, flow));
}

ModulePtr make_avg_pool1d(Build&, const Layer& layer, Flow& flow) {
  Pool1dOptions options = pool1d_options(layer, flow);
  options.count_include_pad = layer.flag("count_include_pad");
  return std::make_shared<models::AvgPool1d>(options);
}

// ---- norms and activations
constexpr std::initializer_list<Flow::Kind> kValues = {Flow::image, Flow::tokens, Flow::rows};

ModulePtr make_batch_norm(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  layer.agrees("num_features", flow.c, flow);
  return std::make_shared<models::BatchNorm2d>(build.init, flow.c, layer.real("eps"),
                                               layer.real("momentum"));
}

ModulePtr make_group_norm(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  layer.agrees("num_channels", flow.c, flow);
  const int64_t groups = layer.integer("num_groups");
  if (flow.c % groups != 0)
    layer.fail("num_groups", fmt::format("expected a divisor of {}, the channels of its input, {}; "
                                         "got {}",
                                         flow.c, text_of(flow), groups));
  return std::make_shared<models::GroupNorm>(build.init, groups, flow.c, layer.real("eps"));
}

ModulePtr make_layer_norm(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  layer.agrees("normalized_shape", flow.c, flow);
  return std::make_shared<models::LayerNorm>(build.init, flow.c, layer.real("eps"));
}

template <class M>
ModulePtr make_elementwise(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<M>();
}

ModulePtr make_leaky_relu(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<models::LeakyRelu>(layer.real("negative_slope"));
}

ModulePtr make_gelu(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<models::Gelu>(
      value_named<Gelu>(layer.values.at("approximate").get<std::string>(),
                        {{"none", Gelu::exact}, {"tanh", Gelu::tanh}}));
}

ModulePtr make_dropout(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<models::Dropout>(layer.real("p"));
}

ModulePtr make_dropout2d(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  return std::make_shared<models::Dropout2d>(layer.real("p"));
}

// ---- rows and tokens
ModulePtr make_linear(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::rows, Flow::tokens});
  layer.agrees("in_features", flow.c, flow);
  const int64_t in = flow.c;
  flow.c = layer.has("out_features") ? layer.integer("out_features") : *build.model.num_classes;
  build.check_weights(layer, {in, flow.c});
  return std::make_shared<models::Linear>(build.init, in, flow.c, layer.flag("bias"));
}

ModulePtr make_flatten(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  if (flow.varies())
    layer.fail(nullptr, fmt::format("expected a fixed number of tokens, got {}, whose T changes "
                                    "from batch to batch; mean_pool and first_token take them",
                                    text_of(flow)));
  flow = {.kind = Flow::rows, .c = flow.places() * flow.c};
  if (flow.c > kMostFeatures)
    layer.fail(nullptr, fmt::format("expected at most {} features, got {}", kMostFeatures, flow.c));
  return std::make_shared<models::Flatten>();
}

ModulePtr make_embedding(Build& build, const Layer& layer, Flow& flow) {
  if (flow.kind != Flow::ids)
    layer.fail(nullptr, fmt::format("expected to be the first layer of a network for texts, got {} "
                                    "as its input",
                                    text_of(flow)));
  const int64_t ids =
      layer.has("num_embeddings") ? layer.integer("num_embeddings") : *build.model.vocab_size;
  if (ids < build.spec.vocabulary)
    layer.fail("num_embeddings", fmt::format("expected at least {}, the tokens of the data, or "
                                             "null; got {}",
                                             build.spec.vocabulary, ids));
  const int64_t padding = layer.has("padding_idx") ? layer.integer("padding_idx") : -1;
  if (padding >= ids)
    layer.fail("padding_idx",
               fmt::format("expected less than num_embeddings {}, got {}", ids, padding));
  flow = {.kind = Flow::tokens, .t = flow.t, .c = layer.integer("embedding_dim")};
  build.check_weights(layer, {ids, flow.c});
  return std::make_shared<models::TokenEmbedding>(build.init, ids, flow.c, padding);
}

ModulePtr make_position_embedding(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  const int64_t most = flow.varies() ? build.spec.sample[0] : flow.t;
  const int64_t rows = layer.has("num_embeddings") ? layer.integer("num_embeddings") : most;
  if (rows < most)
    layer.fail("num_embeddings",
               fmt::format("expected at least {}, the {} of its input, or null; got {}", most,
                           flow.varies() ? "longest" : "tokens", rows));
  build.check_weights(layer, {rows, flow.c});
  return std::make_shared<models::PositionEmbedding>(build.init, rows, flow.c);
}

ModulePtr make_class_token(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  if (flow.varies())
    layer.fail(nullptr,
               "expected tokens of an image; texts begin with a token of that kind, which "
               "first_token takes");
  ++flow.t;
  return std::make_shared<models::ClassToken>(build.init, flow.c);
}

ModulePtr make_patch_embedding(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  const int64_t out = layer.integer("embed_dim");
  const Pair patch = layer.two("patch_size");
  if (flow.h % patch[0] != 0 || flow.w % patch[1] != 0)
    layer.fail("patch_size", fmt::format("expected divisors of the height and width of its input, "
                                         "{}; got {} and {}",
                                         text_of(flow), patch[0], patch[1]));
  build.check_weights(layer, {out, patch[0], patch[1], flow.c});
  const int64_t in = flow.c;
  flow = {.kind = Flow::tokens, .t = flow.h / patch[0] * (flow.w / patch[1]), .c = out};
  return std::make_shared<models::PatchEmbedding>(build.init, in, out, patch);
}

ModulePtr make_tokens(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  flow = {.kind = Flow::tokens, .t = flow.h * flow.w, .c = flow.c};
  return std::make_shared<models::Tokens>();
}

ModulePtr make_transpose(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  check_fixed(layer, flow);
  std::swap(flow.t, flow.c);
  return std::make_shared<models::SwapTokens>();
}

ModulePtr make_attention(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  layer.agrees("embed_dim", flow.c, flow);
  models::SelfAttentionOptions options;
  options.heads = layer.integer("num_heads");
  options.dropout = layer.real("dropout");
  options.causal = layer.flag("is_causal");
  if (flow.c % options.heads != 0)
    layer.fail("num_heads", fmt::format("expected a divisor of {}, the channels of its input, {}; "
                                        "got {}",
                                        flow.c, text_of(flow), options.heads));
  if (build.family == Family::decoder && !options.causal)
    layer.fail("is_causal",
               "expected true in a network that guesses each next token, or it would "
               "see the token that it guesses; got false");
  build.check_weights(layer, {3, flow.c, flow.c});
  return std::make_shared<models::MultiheadAttention>(build.init, flow.c, options,
                                                      layer.flag("bias"));
}

ModulePtr make_mean_pool(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image, Flow::tokens});
  flow = {.kind = Flow::rows, .c = flow.c};
  return std::make_shared<models::MeanPool>();
}

ModulePtr make_first_token(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  flow = {.kind = Flow::rows, .c = flow.c};
  return std::make_shared<models::FirstToken>();
}

// ---- lists within the list
std::shared_ptr<models::Sequential> chain(const std::vector<ModulePtr>& modules) {
  auto all = std::make_shared<models::Sequential>();
  for (const ModulePtr& module : modules) all->append(module);
  return all;
}

ModulePtr make_nested(Build& build, const Layer& layer, Flow& flow) {
  return chain(build.list(layer, "modules", flow));
}

ModulePtr make_residual(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  Flow branch = flow, side = flow;
  const std::vector<ModulePtr> modules = build.list(layer, "modules", branch);
  const std::vector<ModulePtr> shortcut = build.list(layer, "shortcut", side);
  if (!(branch == side))
    layer.fail(
        "modules",
        fmt::format("expected {}, {}, to add it to; got {}{}", text_of(side),
                    shortcut.empty() ? "its input" : "which its shortcut gives", text_of(branch),
                    shortcut.empty() ? "; a shortcut, such as a conv2d of kernel_size 1, "
                                       "may change the input"
                                     : ""));
  flow = branch;
  return std::make_shared<models::Residual>(modules, shortcut.empty() ? nullptr : chain(shortcut));
}

// The list in which a repeat stands was unrolled before.
ModulePtr make_repeat(Build&, const Layer&, Flow&) {
  FRUGAL_ASSERT(false);
  return nullptr;
}

Key padding_key() {
  Key key = usual("padding", pair(0, kSide), 0);
  key.also = "same";
  return key;
}

std::vector<Key> pool_keys() {
  return {needed("kernel_size", pair(1, kSide)), usual("stride", pair_or_null(1, kSide), nullptr),
          usual("padding", pair(0, kSide), 0)};
}

std::vector<Key> pool1d_keys() {
  return {needed("kernel_size", integer(1, kSide)),
          usual("stride", integer_or_null(1, kSide), nullptr),
          usual("padding", integer(0, kSide), 0)};
}

std::vector<Key> with(std::vector<Key> keys, Key key) {
  keys.push_back(std::move(key));
  return keys;
}

const std::vector<Entry>& entries() {
  const auto eps = [] { return usual("eps", positive(1), 1e-5); };
  static const std::vector<Entry> all = {
      {"conv2d",
       {needed("out_channels", integer(1, kWide)), needed("kernel_size", pair(1, kSide)),
        usual("stride", pair(1, kSide), 1), padding_key(), usual("dilation", pair(1, kSide), 1),
        usual("groups", integer(1, kWide), 1), usual("bias", boolean(), true),
        given("in_channels")},
       make_conv2d},
      {"max_pool2d", pool_keys(), make_max_pool2d},
      {"avg_pool2d", with(pool_keys(), usual("count_include_pad", boolean(), true)),
       make_avg_pool2d},
      {"adaptive_avg_pool2d", {needed("output_size", pair(1, kSide))}, make_adaptive_avg_pool2d},
      {"adaptive_max_pool2d", {needed("output_size", pair(1, kSide))}, make_adaptive_max_pool2d},
      {"conv1d",
       {needed("out_channels", integer(1, kWide)), needed("kernel_size", integer(1, kSide)),
        usual("stride", integer(1, kSide), 1), usual("padding", integer(0, kSide), 0),
        usual("dilation", integer(1, kSide), 1), usual("groups", integer(1, kWide), 1),
        usual("bias", boolean(), true), given("in_channels")},
       make_conv1d},
      {"max_pool1d", pool1d_keys(), make_max_pool1d},
      {"avg_pool1d", with(pool1d_keys(), usual("count_include_pad", boolean(), true)),
       make_avg_pool1d},
      {"batch_norm",
       {given("num_features"), eps(), usual("momentum", number(0, 1), 0.1)},
       make_batch_norm},
      {"group_norm",
       {needed("num_groups", integer(1, kWide)), given("num_channels"), eps()},
       make_group_norm},
      {"layer_norm", {given("normalized_shape"), eps()}, make_layer_norm},
      {"relu", {}, make_elementwise<models::Relu>},
      {"leaky_relu", {usual("negative_slope", number(0, 1), 0.01)}, make_leaky_relu},
      {"elu", {}, make_elementwise<models::Elu>},
      {"gelu",
       {usual("approximate", {{"type", "string"}, {"enum", {"none", "tanh"}}}, "none")},
       make_gelu},
      {"silu", {}, make_elementwise<models::Silu>},
      {"sigmoid", {}, make_elementwise<models::Sigmoid>},
      {"tanh", {}, make_elementwise<models::Tanh>},
      {"identity", {}, make_elementwise<models::Identity>},
      {"dropout", {usual("p", probability(), 0.5)}, make_dropout},
      {"dropout2d", {usual("p", probability(), 0.5)}, make_dropout2d},
      {"flatten", {}, make_flatten},
      {"linear",
       {usual("out_features", integer_or_null(1, kWide), nullptr), usual("bias", boolean(), true),
        given("in_features")},
       make_linear},
      {"embedding",
       {needed("embedding_dim", integer(1, kWide)),
        usual("num_embeddings", integer_or_null(1, 1 << 24), nullptr),
        usual("padding_idx", integer_or_null(0, 1 << 24), nullptr)},
       make_embedding},
      {"position_embedding",
       {usual("num_embeddings", integer_or_null(1, kWide), nullptr)},
       make_position_embedding},
      {"class_token", {}, make_class_token},
      {"patch_embedding",
       {needed("embed_dim", integer(1, kWide)), needed("patch_size", pair(1, kSide))},
       make_patch_embedding},
      {"tokens", {}, make_tokens},
      {"transpose", {}, make_transpose},
      {"attention",
       {needed("num_heads", integer(1, 4096)), usual("dropout", probability(), 0.0),
        usual("bias", boolean(), true), usual("is_causal", boolean(), false), given("embed_dim")},
       make_attention},
      {"mean_pool", {}, make_mean_pool},
      {"first_token", {}, make_first_token},
      {"residual",
       {list_of_modules("modules", true), list_of_modules("shortcut", false)},
       make_residual},
      {"sequential", {list_of_modules("modules", true)}, make_nested},
      {"repeat",
       {list_of_modules("modules", true), needed("times", integer(1, kMostModules))},
       make_repeat},
  };
  return all;
}

// ---- the network
// Does the list have a layer of these names, also in a nested sequential?
bool has_named(const Json& modules, const std::string& path,
               std::initializer_list<std::string_view> names) {
  for (const Layer& layer : unrolled(modules, path)) {
    if (is_named(layer, names)) return true;
    if (is_named(layer, {"sequential"}) &&
        has_named(layer.values.at("modules"), layer.path_of("modules"), names))
      return true;
  }
  return false;
}

constexpr const char* kPath = "model.modules";

// The blocks of a list: see modules_have_blocks(). A relu behind a residual is in its block.
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

Flow flow_of(const BatchSpec& spec) {
  const Shape& sample = spec.sample;
  // Texts of a batch are as long as its longest one, and a prompt may have any length.
  if (spec.kind == BatchSpec::Kind::sequences) return {.kind = Flow::ids};
  if (sample.dim() == 3)
    return {.kind = Flow::image, .h = sample[0], .w = sample[1], .c = sample[2]};
  return {.kind = Flow::rows, .c = sample.numel()};
}

void check_output(const Layer& last, const Flow& flow, const Build& build) {
  Flow wanted{.kind = Flow::rows, .c = *build.model.num_classes};
  if (build.family == Family::decoder) wanted.kind = Flow::tokens;
  if (flow == wanted) return;
  throw ConfigError(last.path,
                    fmt::format("expected {} from the last layer, {}; got {}", text_of(wanted),
                                build.family == Family::decoder
                                    ? "for each token one number for each token of the vocabulary"
                                    : "one number for each class",
                                text_of(flow)));
}

}  // namespace

Json modules_schema() {
  Json layers = Json::object();
  for (const Entry& entry : entries()) {
    Json object = {{"type", "object"}, {"additionalProperties", false}};
    object["properties"] = Json::object();
    Json required = Json::array();
    for (const Key& key : entry.keys) {
      Json each = key.schema;
      if (key.list) each["items"] = {{"$ref", "#/properties/model/properties/modules/items"}};
      if (!key.also.empty()) each = {{"anyOf", {each, {{"const", key.also}}}}};
      if (!key.required) each["default"] = key.usual;
      object["properties"][key.name] = each;
      if (key.required) required.push_back(key.name);
    }
    if (!required.empty()) object["required"] = required;
    Json any = Json::array({object, {{"type", "null"}}});
    if (!entry.keys.empty()) any.push_back(object["properties"][entry.keys[0].name]);
    layers[entry.name] = {{"anyOf", any}};
  }
  Json schema = {{"type", "array"}};
  schema["items"] = {{"type", {"object", "string"}}, {"minProperties", 1}, {"maxProperties", 1}};
  schema["items"]["additionalProperties"] = false;
  schema["items"]["properties"] = layers;
  schema["minItems"] = 0;
  schema["maxItems"] = kMostModules;
  return schema;
}

std::string first_key_of(const std::string& layer) {
  const Entry* entry = find_entry(layer);
  return entry == nullptr || entry->keys.empty() ? "" : entry->keys[0].name;
}

void check_modules(const Json& modules, const std::string& path) {
  int64_t count = 0;
  check_list(modules, path, 1, count);
}

Family family_of_modules(const Json& modules) {
  if (modules.empty()) return Family::images;
  const std::vector<Layer> layers = unrolled(modules, kPath);
  if (!is_named(layers[0], {"embedding"})) return Family::images;
  return has_named(modules, kPath, {"mean_pool", "first_token"}) ? Family::encoder
                                                                 : Family::decoder;
}

bool modules_have_blocks(const Json& modules) {
  return !modules.empty() && !blocks_of(unrolled(modules, kPath)).empty();
}

ModulePtr make_sequential(Init& init, const ModelConfig& model, const BatchSpec& spec) {
  if (model.modules.empty())
    throw ConfigError(kPath,
                      "expected the layers of the network, such as [\"flatten\", "
                      "{\"linear\": 10}], got []");
  const std::vector<Layer> layers = unrolled(model.modules, kPath);
  Build build(init, model, spec);
  const bool texts = spec.kind == BatchSpec::Kind::sequences;
  if (texts && build.family == Family::images)
    throw ConfigError(layers[0].path,
                      "expected an embedding as the first layer, since the data are texts");
  if (texts && spec.target_of_each_token() != (build.family == Family::decoder))
    throw ConfigError(kPath,
                      spec.target_of_each_token()
                          ? "expected no mean_pool and no first_token, since these data ask "
                            "for an output at each token"
                          : "expected a mean_pool or a first_token, since these data ask for "
                            "one output of each text");
  Flow flow = flow_of(spec);
  std::vector<ModulePtr> modules = build.all(layers, flow);
  check_output(layers.back(), flow, build);
  std::vector<models::Sequential::Block> blocks = blocks_of(layers);
  const auto head = std::dynamic_pointer_cast<models::Linear>(modules.back());
  if (build.family == Family::decoder && head == nullptr)
    throw ConfigError(layers.back().path,
                      "expected a linear as the last layer, whose outputs are "
                      "the next token's");
  if (head == nullptr) {
    const auto network = chain(modules);
    network->set_blocks(std::move(blocks));
    return network;
  }
  modules.pop_back();
  if (build.family != Family::decoder)
    return std::make_shared<models::SequentialClassifier>(modules, head, std::move(blocks));
  int64_t longest = spec.sample[0];
  for (const Layer& layer : layers)
    if (is_named(layer, {"position_embedding"}) && layer.has("num_embeddings"))
      longest = layer.integer("num_embeddings");
  return std::make_shared<models::SequentialLanguageModel>(modules, head, std::move(blocks),
                                                           longest);
}

void check_sequential(const ModelConfig& model, const BatchSpec& spec) {
  Init init;
  init.device = kMeta;
  const ModulePtr network = make_sequential(init, model, spec);
  try {
    const NoGrad no_grad;
    Rng rng(0);
    Context context;
    context.rng = &rng;
    Batch batch = shape_of_batch(spec, 2, kMeta);
    run_forward(*train::make_task(spec), *network, batch, context);
  } catch (const OutOfMemory&) {  // meta's limit: the planner says what to do
  } catch (const Error& error) {
    throw ConfigError(kPath, error.what());
  }
}

}  // namespace frugal::apps
