#include "models/registry.h"

#include <algorithm>

#include "autograd/record.h"
#include "core/words/quoted.h"
#include "models/self_supervised/self_supervised.h"
#include "models/sequential/sequential.h"
#include "models/zoo/alexnet.h"
#include "models/zoo/bert.h"
#include "models/zoo/decoder.h"
#include "models/zoo/densenet.h"
#include "models/zoo/dilated_resnet.h"
#include "models/zoo/dilation8.h"
#include "models/zoo/drn.h"
#include "models/zoo/faster_rcnn.h"
#include "models/zoo/gat.h"
#include "models/zoo/gcn.h"
#include "models/zoo/gcnii.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/hrnet.h"
#include "models/zoo/mlp.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/retinanet.h"
#include "models/zoo/sage.h"
#include "models/zoo/semantic_fpn.h"
#include "models/zoo/swin.h"
#include "models/zoo/unet.h"
#include "models/zoo/vgg.h"
#include "models/zoo/vit.h"

namespace frugal::models {
namespace {

using ModulePtr = std::shared_ptr<Module>;

bool has_key(const Network& network, const std::string& key) {
  return std::any_of(network.keys.begin(), network.keys.end(),
                     [&](const Key& each) { return key == each.name; });
}

// Calls `f`, whose OptionErrors say no network: they are at "width".
template <class F>
auto of_network(const std::string& name, const F& f) {
  try {
    return f();
  } catch (const OptionError& e) {
    throw OptionError(name + "." + e.path(), e.reason());
  }
}

// ---- sizes
template <class S>
Sizes sizes_of(const S& options) {
  Sizes sizes;
  if constexpr (requires { options.heads.size(); }) {  // Swin: no option
  } else if constexpr (requires { options.heads; }) {
    sizes.width_step = options.heads;
  }
  if constexpr (requires { S::set_sizes(sizes, options); }) S::set_sizes(sizes, options);
  return sizes;
}

// ---- rows of the table
template <class S>
using Maker = ModulePtr (*)(Init&, const S&);

template <class S>
void add(std::vector<Network>& all, const Traits& traits, Maker<S> maker) {
  static const std::vector<Option<S>> list = S::list();
  std::vector<Key> keys;
  for (const Option<S>& each : list) keys.push_back(each.key);
  for (const auto& [its_name, its_own] : S::published()) {
    const auto with = [own = its_own](const Options& options) {
      S s = own;
      set_options(s, list, options);
      return s;
    };
    Network network;
    network.name = its_name;
    network.traits = traits;
    network.keys = keys;
    network.make = [with, maker, name = its_name](const Options& options, Init& init) {
      return of_network(name, [&] { return maker(init, with(options)); });
    };
    network.sizes = [with, name = its_name](const Options& options) {
      return of_network(name, [&] {
        with(options);  // Errors
        Options own_layers = options;
        own_layers.erase(keys::kLayers.name);
        return sizes_of(with(own_layers));
      });
    };
    network.usual = [own = its_own](const std::string& key) {
      for (const Option<S>& each : list)
        if (key == each.key.name) return each.get(own);
      return Value();
    };
    network.family = [traits](const Options&) { return traits.family; };
    network.has_blocks = [traits](const Options&) { return traits.has_blocks; };
    all.push_back(network);
  }
}

template <class Net, class S>
void add(std::vector<Network>& all, const Traits& traits) {
  const Maker<S> make = [](Init& init, const S& options) -> ModulePtr {
    return std::make_shared<Net>(init, options);
  };
  add<S>(all, traits, make);
}

// ---- networks that learn from views
constexpr const char* kUsualTrunk = "resnet50";

// Errors: an option "trunk" of `name` that gives no features.
const Network& trunk_of(const std::string& name, const Options& options) {
  const auto given = options.find(keys::kTrunk.name);
  const Value trunk = given == options.end() ? Value(kUsualTrunk) : given->second;
  const std::string path = name + "." + keys::kTrunk.name;
  check_range(keys::kTrunk.range, trunk, path);
  if (!is_network(trunk.text()) || !network(trunk.text()).traits.gives_features)
    throw OptionError(path, fmt::format("expected one of {}, got {}",
                                        fmt::join(trunk_names(), ", "), in_quotes(trunk.text())));
  return network(trunk.text());
}

// The options that the trunk gets, which gives features.
Options for_trunk(const Network& trunk, const Options& options) {
  Options some;
  for (const auto& [key, value] : options)
    if (has_key(trunk, key)) some.emplace(key, value);
  some[keys::kNumClasses.name] = 0;
  return some;
}

// How many features the trunk gives shows a pass on meta.
int64_t features_of(const Network& trunk, const Options& options) {
  constexpr int64_t kSide = 64;
  const NoGrad no_grad;
  Init nowhere;
  nowhere.device = kMeta;
  Context context;
  context.training = false;
  const auto given = options.find(keys::kInChannels.name);
  const Value channels =
      given == options.end() ? trunk.usual(keys::kInChannels.name) : given->second;
  const Tensor sample = Tensor::empty({1, kSide, kSide, channels.integer()}, DType::f32, kMeta);
  return trunk.make(options, nowhere)->forward(Variable(sample), context).size(1);
}

void add_learner(std::vector<Network>& all, const std::string& name) {
  const SelfSupervision method = self_supervision(name);
  const auto list = SelfSupervisedOptions::list(method);
  Network network;
  network.name = name;
  network.traits = {.family = Family::images, .learns_from_views = true};
  network.keys = {keys::kTrunk};
  for (const auto& each : list) network.keys.push_back(each.key);
  network.make = [=](const Options& options, Init& init) -> ModulePtr {
    const Network& trunk = trunk_of(name, options);
    const Options rest = for_trunk(trunk, options);
    const int64_t features = features_of(trunk, rest);
    SelfSupervisedOptions chosen = published_options(method, features);
    of_network(name, [&] { set_options(chosen, list, options); });
    return std::make_shared<SelfSupervised>(
        init, [&](Init& at) { return trunk.make(rest, at); }, features, chosen);
  };
  network.sizes = [=](const Options& options) {
    SelfSupervisedOptions chosen;
    of_network(name, [&] { set_options(chosen, list, options); });
    const Network& trunk = trunk_of(name, options);
    return trunk.sizes(for_trunk(trunk, options));
  };
  network.usual = [](const std::string& key) {
    return key == keys::kTrunk.name ? Value(kUsualTrunk) : Value();
  };
  network.family = [](const Options&) { return Family::images; };
  network.has_blocks = [=](const Options& options) {
    return trunk_of(name, options).traits.has_blocks;
  };
  all.push_back(network);
}

// ---- a list of layers
Value::List modules_of(const Options& options) {
  const auto given = options.find("modules");
  return given == options.end() ? Value::List() : given->second.list();
}

void add_sequential(std::vector<Network>& all) {
  add<SequentialOptions>(all, {.who = "sequential"}, make_sequential);
  all.back().family = [](const Options& options) { return family_of_layers(modules_of(options)); };
  all.back().has_blocks = [](const Options& options) {
    return layers_have_blocks(modules_of(options));
  };
}

// ---- the table
std::vector<Network> all_networks() {
  constexpr const char *kResNets = "ResNets", *kDetectors = "detection networks",
                       *kGraphs = "graph networks";
  const Traits pixels{.family = Family::segmentation};
  const auto named = [](Traits traits, const char* who) {
    traits.who = who;
    return traits;
  };
  Traits trunk_of_pixels = pixels;
  trunk_of_pixels.has_blocks = true;
  const Traits detector{.family = Family::detection, .group = kDetectors, .has_blocks = true};
  const Traits graph{.family = Family::graph, .group = kGraphs};
  Traits resnet{.who = "the CIFAR ResNets",
                .group = kResNets,
                .has_blocks = true,
                .has_order = true,
                .gives_features = true};
  std::vector<Network> all;
  add<CifarResNet, CifarResNetOptions>(all, resnet);
  add<ResNet, ResNetOptions>(all, named(resnet, "resnet18 and larger"));
  add<AlexNet, AlexNetOptions>(all, {.who = "alexnet", .has_blocks = true});
  add<Vgg, VggOptions>(all, {.who = "VGG", .has_blocks = true});
  add<DenseNet, DenseNetOptions>(all, {.who = "DenseNet", .has_blocks = true});
  add<Vit, VitOptions>(all, {.who = "ViT", .has_blocks = true, .has_order = true});
  add<Swin, SwinOptions>(all, {.who = "Swin", .has_blocks = true, .has_order = true});
  add<DilatedResNet, DilatedResNetOptions>(
      all, named(trunk_of_pixels, "fcn_resnet50 to deeplabv3_resnet101"));
  add<SemanticFpn, SemanticFpnOptions>(all, named(trunk_of_pixels, "fpn_resnet50, fpn_resnet101"));
  add<Drn, DrnOptions>(all, named(trunk_of_pixels, "DRN"));
  add<Dilation8, Dilation8Options>(all, named(pixels, "dilation8"));
  add<HrNet, HrNetOptions>(all, named(pixels, "HRNet"));
  add<Unet, UnetOptions>(all, named(pixels, "unet"));
  add<RetinaNet, RetinaNetOptions>(all, named(detector, "retinanet_resnet50_fpn"));
  add<FasterRcnn, FasterRcnnOptions>(all, named(detector, "fasterrcnn_resnet50_fpn"));
  add<Mlp, MlpOptions>(all, {.who = "mlp", .reads_rows = true});
  for (const char* name : {"simsiam", "byol", "moco_v2"}) add_learner(all, name);
  add<Bert, BertOptions>(
      all, {.family = Family::encoder, .who = "BERT", .has_blocks = true, .has_order = true});
  for (Network& each : all) {
    if (each.traits.family != Family::encoder) continue;
    const BertOptions options = bert_options(each.name);
    each.traits.first_position = options.first_position();
    each.traits.lacks_token_types = options.family != BertFamily::bert;
  }
  add<Gpt2, Gpt2Options>(
      all, {.family = Family::decoder, .who = "GPT-2", .has_blocks = true, .has_order = true});
  add<Decoder, DecoderOptions>(
      all, {.family = Family::decoder, .who = "decoder", .has_blocks = true, .has_order = true});
  add<Gcn, GcnOptions>(all, named(graph, "gcn"));
  add<Sage, SageOptions>(all, named(graph, "sage"));
  add<Gat, GatOptions>(all, named(graph, "gat"));
  add<Gcnii, GcniiOptions>(all, named(graph, "gcnii"));
  add_sequential(all);
  return all;
}

const Network* find_network(const std::string& name) {
  for (const Network& each : networks())
    if (each.name == name) return &each;
  return nullptr;
}

std::string who_of(const Network& network) {
  return *network.traits.who == '\0' ? network.name : network.traits.who;
}

}  // namespace

const std::vector<Network>& networks() {
  static const std::vector<Network> all = all_networks();
  return all;
}

bool is_network(const std::string& name) { return find_network(name) != nullptr; }

const Network& network(const std::string& name) {
  if (const Network* found = find_network(name); found != nullptr) return *found;
  std::vector<std::string> names;
  for (const Network& each : networks()) names.push_back(each.name);
  throw Error(fmt::format("[models] expected a network, one of {}; got {}", fmt::join(names, ", "),
                          in_quotes(name)));
}

std::vector<std::string> trunk_names() {
  std::vector<std::string> names;
  for (const Network& each : networks())
    if (each.traits.gives_features) names.push_back(each.name);
  return names;
}

const std::vector<Key>& all_keys() {
  static const std::vector<Key> all = [] {
    std::vector<Key> some;
    for (const Network& each : networks())
      for (const Key& key : each.keys) {
        const bool known = std::any_of(some.begin(), some.end(), [&](const Key& k) {
          return std::string_view(k.name) == key.name;
        });
        if (!known && key.by != Key::data) some.push_back(key);
      }
    return some;
  }();
  return all;
}

Value default_of(const std::string& key) {
  for (const Network& each : networks())
    if (has_key(each, key)) return each.usual(key);
  return {};
}

std::string readers_of(const std::string& key) {
  std::vector<std::string> who;
  const auto add = [&](const std::string& text) {
    if (std::find(who.begin(), who.end(), text) == who.end()) who.push_back(text);
  };
  const auto whole_group = [&](const std::string& group) {
    return std::all_of(networks().begin(), networks().end(), [&](const Network& each) {
      return group != each.traits.group || has_key(each, key);
    });
  };
  for (const Network& each : networks()) {
    if (!has_key(each, key)) continue;
    const std::string group = each.traits.group;
    add(!group.empty() && whole_group(group) ? group : who_of(each));
  }
  std::string text;
  for (size_t i = 0; i < who.size(); ++i)
    text += (i == 0 ? "" : i + 1 == who.size() ? " and " : ", ") + who[i];
  return text;
}

std::vector<Key> keys_of(const std::string& name, const Options& options) {
  const Network& wanted = network(name);
  std::vector<Key> all = wanted.keys;
  if (!wanted.traits.learns_from_views) return all;
  for (const Key& key : trunk_of(name, options).keys)
    if (std::string_view(key.name) != keys::kNumClasses.name) all.push_back(key);
  return all;
}

bool has_option(const std::string& name, const Options& options, const std::string& key) {
  const std::vector<Key> all = keys_of(name, options);
  return std::any_of(all.begin(), all.end(), [&](const Key& each) { return key == each.name; });
}

namespace {

// Errors: an option that the network does not have.
const Network& checked(const std::string& name, const Options& options) {
  for (const auto& [given, value] : options) {
    if (has_option(name, options, given)) continue;
    std::vector<std::string> known;
    for (const Key& key : keys_of(name, options)) known.emplace_back(key.name);
    throw OptionError(name + "." + printable(given),
                      fmt::format("expected an option of {}, one of {}; got {}", name,
                                  fmt::join(known, ", "), in_quotes(given)));
  }
  return network(name);
}

}  // namespace

Family family_of(const std::string& name, const Options& options) {
  return network(name).family(options);
}

bool has_blocks(const std::string& name, const Options& options) {
  return network(name).has_blocks(options);
}

ModulePtr make(const std::string& name, const Options& options, Init& init) {
  return checked(name, options).make(options, init);
}

void check(const std::string& name, const Options& options) { sizes(name, options); }

Sizes sizes(const std::string& name, const Options& options) {
  return checked(name, options).sizes(options);
}

}  // namespace frugal::models
