#include <algorithm>

#include "models/activations.h"
#include "models/sequential/layer_list.h"
#include "models/sequential_parts.h"
#include "models/volume_layers.h"

namespace frugal::models::layer_list {

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

std::string Layer::path_of(const char* key) const {
  return is_short && entry->keys[0].name == key ? path : path + "." + key;
}

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

namespace {

constexpr int64_t kWide = 1 << 20, kSide = 1 << 14;

Range integer_or_null(int64_t lo, int64_t hi) { return range::or_nothing(range::integer(lo, hi)); }
// height and width, or one number for both
Range pair(int64_t lo, int64_t hi) {
  Range both = range::integers(lo, hi, 2, 2);
  both.may_be_integer = true;
  return both;
}
Range pair_or_null(int64_t lo, int64_t hi) { return range::or_nothing(pair(lo, hi)); }

LayerKey needed(const char* name, const Range& range) {
  return {.name = name, .range = range, .required = true};
}
LayerKey usual(const char* name, const Range& range, Value value) {
  return {.name = name, .range = range, .usual = std::move(value)};
}
// A number of the input that PyTorch asks for: it may be there, and must be right.
LayerKey given(const char* name) { return usual(name, integer_or_null(1, kMostFeatures), nullptr); }
LayerKey list_of_modules(const char* name, bool required) {
  return {.name = name,
          .range = {.may_be_layers = true, .fewest = required ? 1 : 0, .longest = kMostLayers},
          .usual = Value::List(),
          .required = required};
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
  return std::make_shared<Conv2d>(build.init, in, out, kernel, options, layer.flag("bias"));
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
  return std::make_shared<MaxPool2d>(pool_options(layer, flow));
}

ModulePtr make_avg_pool2d(Build&, const Layer& layer, Flow& flow) {
  Pool2dOptions options = pool_options(layer, flow);
  options.count_include_pad = layer.flag("count_include_pad");
  return std::make_shared<AvgPool2d>(options);
}

ModulePtr make_adaptive_avg_pool2d(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  const Pair size = layer.two("output_size");
  flow.h = size[0];
  flow.w = size[1];
  return std::make_shared<AdaptiveAvgPool2d>(size[0], size[1]);
}

ModulePtr make_adaptive_max_pool2d(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  const Pair size = layer.two("output_size");
  flow.h = size[0];
  flow.w = size[1];
  return std::make_shared<AdaptiveMaxPool2d>(size[0], size[1]);
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
  const Conv1dOptions options{layer.integer("stride"), layer.integer("padding"),
                              layer.integer("dilation"), layer.integer("groups")};
  if (in % options.groups != 0 || out % options.groups != 0)
    layer.fail("groups", fmt::format("expected a divisor of {} and {}, its channels, got {}", in,
                                     out, options.groups));
  build.check_weights(layer, {out, kernel, in / options.groups});
  slide_tokens(layer, flow, kernel, options.stride, options.padding, options.dilation);
  flow.c = out;
  return std::make_shared<Conv1d>(build.init, in, out, kernel, options, layer.flag("bias"));
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
  return std::make_shared<MaxPool1d>(pool1d_options(layer, flow));
}

ModulePtr make_avg_pool1d(Build&, const Layer& layer, Flow& flow) {
  Pool1dOptions options = pool1d_options(layer, flow);
  options.count_include_pad = layer.flag("count_include_pad");
  return std::make_shared<AvgPool1d>(options);
}

// ---- norms and activations
constexpr std::initializer_list<Flow::Kind> kValues = {Flow::image, Flow::tokens, Flow::rows};

// Errors: texts as tokens, over which a norm's mean goes. It would hold padding and, in a network
// that guesses each next token, the token that it guesses.
void check_no_texts(const Build& build, const Layer& layer, const Flow& flow) {
  if (!flow.varies()) return;
  layer.fail(nullptr, fmt::format("expected {}, got {}, whose T changes from batch to batch; "
                                  "layer_norm takes each token alone",
                                  build.family == Family::decoder
                                      ? "a norm of each token in a network that guesses each next "
                                        "token, or it would see the token that it guesses"
                                      : "a fixed number of tokens, or it would see padding",
                                  text_of(flow)));
}

ModulePtr make_batch_norm(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  check_no_texts(build, layer, flow);
  layer.agrees("num_features", flow.c, flow);
  return std::make_shared<BatchNorm2d>(build.init, flow.c, layer.real("eps"),
                                       layer.real("momentum"));
}

ModulePtr make_group_norm(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  check_no_texts(build, layer, flow);
  layer.agrees("num_channels", flow.c, flow);
  const int64_t groups = layer.integer("num_groups");
  if (flow.c % groups != 0)
    layer.fail("num_groups", fmt::format("expected a divisor of {}, the channels of its input, {}; "
                                         "got {}",
                                         flow.c, text_of(flow), groups));
  return std::make_shared<GroupNorm>(build.init, groups, flow.c, layer.real("eps"));
}

ModulePtr make_layer_norm(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  layer.agrees("normalized_shape", flow.c, flow);
  return std::make_shared<LayerNorm>(build.init, flow.c, layer.real("eps"));
}

template <class M>
ModulePtr make_elementwise(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<M>();
}

ModulePtr make_leaky_relu(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<LeakyRelu>(layer.real("negative_slope"));
}

constexpr Range kGelus = range::choice("none, tanh");

ModulePtr make_gelu(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  constexpr frugal::Gelu kKinds[] = {frugal::Gelu::exact, frugal::Gelu::tanh};
  return std::make_shared<models::Gelu>(
      kKinds[place_of(kGelus, layer.values.at("approximate").text())]);
}

ModulePtr make_dropout(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, kValues);
  return std::make_shared<Dropout>(layer.real("p"));
}

ModulePtr make_dropout2d(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  return std::make_shared<Dropout2d>(layer.real("p"));
}

// ---- rows and tokens
ModulePtr make_linear(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::rows, Flow::tokens});
  layer.agrees("in_features", flow.c, flow);
  const int64_t in = flow.c;
  flow.c = layer.has("out_features") ? layer.integer("out_features") : build.options.num_classes;
  build.check_weights(layer, {in, flow.c});
  return std::make_shared<Linear>(build.init, in, flow.c, layer.flag("bias"));
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
  return std::make_shared<Flatten>();
}

ModulePtr make_embedding(Build& build, const Layer& layer, Flow& flow) {
  if (flow.kind != Flow::ids)
    layer.fail(nullptr, fmt::format("expected to be the first layer of a network for texts, got {} "
                                    "as its input",
                                    text_of(flow)));
  const int64_t ids =
      layer.has("num_embeddings") ? layer.integer("num_embeddings") : build.options.vocab_size;
  if (ids < 1)
    layer.fail("num_embeddings",
               "expected a number, since the option vocab_size says none; got null");
  if (ids < build.options.vocabulary)
    layer.fail("num_embeddings", fmt::format("expected at least {}, the tokens of the data, or "
                                             "null; got {}",
                                             build.options.vocabulary, ids));
  const int64_t padding = layer.has("padding_idx") ? layer.integer("padding_idx") : -1;
  if (padding >= ids)
    layer.fail("padding_idx",
               fmt::format("expected less than num_embeddings {}, got {}", ids, padding));
  flow = {.kind = Flow::tokens, .t = flow.t, .c = layer.integer("embedding_dim")};
  build.check_weights(layer, {ids, flow.c});
  return std::make_shared<TokenEmbedding>(build.init, ids, flow.c, padding);
}

ModulePtr make_position_embedding(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  const int64_t most = flow.varies() ? build.options.sample[0] : flow.t;
  const int64_t rows = layer.has("num_embeddings") ? layer.integer("num_embeddings") : most;
  if (rows < most)
    layer.fail("num_embeddings",
               fmt::format("expected at least {}, the {} of its input, or null; got {}", most,
                           flow.varies() ? "longest" : "tokens", rows));
  build.check_weights(layer, {rows, flow.c});
  return std::make_shared<PositionEmbedding>(build.init, rows, flow.c);
}

ModulePtr make_class_token(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  if (flow.varies())
    layer.fail(nullptr,
               "expected tokens of an image; texts begin with a token of that kind, which "
               "first_token takes");
  ++flow.t;
  return std::make_shared<ClassToken>(build.init, flow.c);
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
  return std::make_shared<PatchEmbedding>(build.init, in, out, patch);
}

ModulePtr make_tokens(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image});
  flow = {.kind = Flow::tokens, .t = flow.h * flow.w, .c = flow.c};
  return std::make_shared<Tokens>();
}

ModulePtr make_transpose(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  check_fixed(layer, flow);
  std::swap(flow.t, flow.c);
  return std::make_shared<SwapTokens>();
}

ModulePtr make_attention(Build& build, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  layer.agrees("embed_dim", flow.c, flow);
  SelfAttentionOptions options;
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
  return std::make_shared<MultiheadAttention>(build.init, flow.c, options, layer.flag("bias"));
}

ModulePtr make_mean_pool(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::image, Flow::tokens});
  flow = {.kind = Flow::rows, .c = flow.c};
  return std::make_shared<MeanPool>();
}

ModulePtr make_first_token(Build&, const Layer& layer, Flow& flow) {
  layer.takes(flow, {Flow::tokens});
  flow = {.kind = Flow::rows, .c = flow.c};
  return std::make_shared<FirstToken>();
}

}  // namespace

// ---- lists within the list
std::shared_ptr<Sequential> chain(const std::vector<ModulePtr>& modules) {
  auto all = std::make_shared<Sequential>();
  for (const ModulePtr& module : modules) all->append(module);
  return all;
}

namespace {

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
  return std::make_shared<Residual>(modules, shortcut.empty() ? nullptr : chain(shortcut));
}

// The list in which a repeat stands was unrolled before.
ModulePtr make_repeat(Build&, const Layer&, Flow&) {
  FRUGAL_ASSERT(false);
  return nullptr;
}

LayerKey padding_key() {
  LayerKey key = usual("padding", pair(0, kSide), 0);
  key.also = "same";
  return key;
}

std::vector<LayerKey> pool_keys() {
  return {needed("kernel_size", pair(1, kSide)), usual("stride", pair_or_null(1, kSide), nullptr),
          usual("padding", pair(0, kSide), 0)};
}

std::vector<LayerKey> pool1d_keys() {
  return {needed("kernel_size", range::integer(1, kSide)),
          usual("stride", integer_or_null(1, kSide), nullptr),
          usual("padding", range::integer(0, kSide), 0)};
}

std::vector<LayerKey> with(std::vector<LayerKey> keys, LayerKey key) {
  keys.push_back(std::move(key));
  return keys;
}

}  // namespace

// ---- the table
const std::vector<Entry>& entries() {
  const auto eps = [] { return usual("eps", range::divisor(1), 1e-5); };
  static const std::vector<Entry> all = {
      {"conv2d",
       {needed("out_channels", range::integer(1, kWide)), needed("kernel_size", pair(1, kSide)),
        usual("stride", pair(1, kSide), 1), padding_key(), usual("dilation", pair(1, kSide), 1),
        usual("groups", range::integer(1, kWide), 1), usual("bias", range::flag(), true),
        given("in_channels")},
       make_conv2d},
      {"max_pool2d", pool_keys(), make_max_pool2d},
      {"avg_pool2d", with(pool_keys(), usual("count_include_pad", range::flag(), true)),
       make_avg_pool2d},
      {"adaptive_avg_pool2d", {needed("output_size", pair(1, kSide))}, make_adaptive_avg_pool2d},
      {"adaptive_max_pool2d", {needed("output_size", pair(1, kSide))}, make_adaptive_max_pool2d},
      {"conv1d",
       {needed("out_channels", range::integer(1, kWide)),
        needed("kernel_size", range::integer(1, kSide)),
        usual("stride", range::integer(1, kSide), 1), usual("padding", range::integer(0, kSide), 0),
        usual("dilation", range::integer(1, kSide), 1),
        usual("groups", range::integer(1, kWide), 1), usual("bias", range::flag(), true),
        given("in_channels")},
       make_conv1d},
      {"max_pool1d", pool1d_keys(), make_max_pool1d},
      {"avg_pool1d", with(pool1d_keys(), usual("count_include_pad", range::flag(), true)),
       make_avg_pool1d},
      {"batch_norm",
       {given("num_features"), eps(), usual("momentum", range::number(0, 1), 0.1)},
       make_batch_norm},
      {"group_norm",
       {needed("num_groups", range::integer(1, kWide)), given("num_channels"), eps()},
       make_group_norm},
      {"layer_norm", {given("normalized_shape"), eps()}, make_layer_norm},
      {"relu", {}, make_elementwise<Relu>},
      {"leaky_relu", {usual("negative_slope", range::number(0, 1), 0.01)}, make_leaky_relu},
      {"elu", {}, make_elementwise<Elu>},
      {"gelu", {usual("approximate", kGelus, "none")}, make_gelu},
      {"silu", {}, make_elementwise<Silu>},
      {"sigmoid", {}, make_elementwise<Sigmoid>},
      {"tanh", {}, make_elementwise<Tanh>},
      {"identity", {}, make_elementwise<Identity>},
      {"dropout", {usual("p", range::below(0, 1), 0.5)}, make_dropout},
      {"dropout2d", {usual("p", range::below(0, 1), 0.5)}, make_dropout2d},
      {"flatten", {}, make_flatten},
      {"linear",
       {usual("out_features", integer_or_null(1, kWide), nullptr),
        usual("bias", range::flag(), true), given("in_features")},
       make_linear},
      {"embedding",
       {needed("embedding_dim", range::integer(1, kWide)),
        usual("num_embeddings", integer_or_null(1, 1 << 24), nullptr),
        usual("padding_idx", integer_or_null(0, 1 << 24), nullptr)},
       make_embedding},
      {"position_embedding",
       {usual("num_embeddings", integer_or_null(1, kWide), nullptr)},
       make_position_embedding},
      {"class_token", {}, make_class_token},
      {"patch_embedding",
       {needed("embed_dim", range::integer(1, kWide)), needed("patch_size", pair(1, kSide))},
       make_patch_embedding},
      {"tokens", {}, make_tokens},
      {"transpose", {}, make_transpose},
      {"attention",
       {needed("num_heads", range::integer(1, 4096)), usual("dropout", range::below(0, 1), 0.0),
        usual("bias", range::flag(), true), usual("is_causal", range::flag(), false),
        given("embed_dim")},
       make_attention},
      {"mean_pool", {}, make_mean_pool},
      {"first_token", {}, make_first_token},
      {"residual",
       {list_of_modules("modules", true), list_of_modules("shortcut", false)},
       make_residual},
      {"sequential", {list_of_modules("modules", true)}, make_nested},
      {"repeat",
       {list_of_modules("modules", true), needed("times", range::integer(1, kMostLayers))},
       make_repeat},
  };
  return all;
}

}  // namespace frugal::models::layer_list
