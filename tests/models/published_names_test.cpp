// Published weights under the names of other libraries, and what is said of names that do not fit.
#include "models/published_names.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "core/rng.h"
#include "models/self_supervised/self_supervised.h"
#include "models/state.h"
#include "models/zoo/bert.h"
#include "models/zoo/densenet.h"
#include "models/zoo/dilated_resnet.h"
#include "models/zoo/gpt2.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "models/zoo/vit.h"
#include "ops/dense/copy.h"

using namespace frugal;
using namespace frugal::models;

namespace {

using Rename = std::function<std::string(std::string)>;

Init init_of(uint64_t seed) { return Init{Rng(seed)}; }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// All of them, one after the other.
Rename each_of(const std::vector<std::pair<std::string, std::string>>& changes) {
  return [changes](std::string name) {
    for (const auto& [from, to] : changes) name = replaced(name, from, to);
    return name;
  };
}

std::vector<double> values(Module& module) {
  std::vector<double> all;
  for (const auto& [name, tensor] : state_dict(module))
    for (const double value : tensor.to_vector()) all.push_back(value);
  return all;
}

NamedTensors renamed(Module& module, const Rename& rename) {
  NamedTensors state;
  for (const auto& [name, tensor] : state_dict(module)) state.emplace_back(rename(name), tensor);
  return state;
}

// `to` gets the values of `from` from a file with these names.
void check_loads(Module& from, Module& to, const NamedTensors& state) {
  REQUIRE(values(from) != values(to));
  const StateNotes notes = load_state_dict(to, state);
  CHECK(values(from) == values(to));
  CHECK(notes.ignored.empty());
  CHECK(notes.reset.empty());
}

Vit random_vit(uint64_t seed, int64_t classes = 3) {
  VitOptions options;
  options.image = 8;
  options.patch = 4;
  options.layers = 2;
  options.hidden = 6;
  options.heads = 2;
  options.num_classes = classes;
  Init init = init_of(seed);
  Vit net(init, options);
  Rng rng(seed + 100);  // the head and others begin with zeros
  for (const auto& p : net.parameters())
    p.parameter->set_value(Tensor::randn(p.parameter->shape(), rng.next()));
  return net;
}

CifarResNet resnet20(uint64_t seed, int64_t classes = 10) {
  CifarResNetOptions options = cifar_resnet_options("resnet20");
  options.num_classes = classes;
  Init init = init_of(seed);
  return {init, options};
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a ViT loads under timm's names") {
  Vit from = random_vit(1), to = random_vit(2);
  check_loads(from, to,
              renamed(from, each_of({{"class_token", "cls_token"},
                                     {"encoder.pos_embedding", "pos_embed"},
                                     {"conv_proj", "patch_embed.proj"},
                                     {"encoder.layers.encoder_layer_", "blocks."},
                                     {"ln_1", "norm1"},
                                     {"ln_2", "norm2"},
                                     {"self_attention.in_proj_", "attn.qkv."},
                                     {"self_attention.out_proj", "attn.proj"},
                                     {"mlp.0", "mlp.fc1"},
                                     {"mlp.3", "mlp.fc2"},
                                     {"encoder.ln", "norm"},
                                     {"heads.head", "head"}})));
}

TEST_CASE("a ViT loads under Hugging Face's names, with query, key and value apart") {
  Vit from = random_vit(1), to = random_vit(2);
  const Rename rename = each_of({{"class_token", "vit.embeddings.cls_token"},
                                 {"encoder.pos_embedding", "vit.embeddings.position_embeddings"},
                                 {"conv_proj", "vit.embeddings.patch_embeddings.projection"},
                                 {"encoder.layers.encoder_layer_", "vit.encoder.layer."},
                                 {"ln_1", "layernorm_before"},
                                 {"ln_2", "layernorm_after"},
                                 {"self_attention.out_proj", "attention.output.dense"},
                                 {"mlp.0", "intermediate.dense"},
                                 {"mlp.3", "output.dense"},
                                 {"encoder.ln", "vit.layernorm"},
                                 {"heads.head", "classifier"}});
  NamedTensors state;
  for (const auto& [name, tensor] : renamed(from, rename)) {
    const size_t at = name.find("self_attention.in_proj_");
    if (at == std::string::npos) {
      state.emplace_back(name, tensor);
      continue;
    }
    const std::string ending = name.substr(name.rfind('_') + 1);
    int64_t third = 0;
    for (const char* part : {"query.", "key.", "value."}) {
      state.emplace_back(name.substr(0, at) + "attention.attention." + part + ending,
                         tensor.slice(0, 6 * third, 6 * third + 6));
      ++third;
    }
  }
  check_loads(from, to, state);
  // A part that is missing: the file's own names are named.
  std::erase_if(state, [](const auto& entry) {
    return entry.first == "vit.encoder.layer.0.attention.attention.key.bias";
  });
  const std::string what = message_of([&] { load_state_dict(to, state, "vit"); });
  CAPTURE(what);
  CHECK(what.find("encoder_layer_0.self_attention.in_proj_bias") != std::string::npos);
  CHECK(what.find("vit.encoder.layer.0.attention.attention.query.bias") != std::string::npos);
}

TEST_CASE("torchvision's first files, wrapped models and other names of ResNets load") {
  Vit from = random_vit(1), to = random_vit(2);
  check_loads(from, to,
              renamed(from, each_of({{"mlp.0", "mlp.linear_1"}, {"mlp.3", "mlp.linear_2"}})));

  CifarResNet a = resnet20(1), b = resnet20(2), c = resnet20(3);
  check_loads(a, b, renamed(a, [](const std::string& name) { return "module." + name; }));
  check_loads(a, c, renamed(a, each_of({{"linear.", "fc."}})));

  Init init = init_of(4), other = init_of(5);
  ResNetOptions options = resnet_options("resnet50");
  options.num_classes = 2;
  ResNet large(init, options), copy(other, options);
  check_loads(large, copy, renamed(large, [](std::string name) {
                const bool in_layer = name.starts_with("layer");
                std::string stage, block, rest = name;
                if (in_layer) {
                  stage = std::to_string(name[5] - '1');
                  const size_t dot = name.find('.', 7);
                  block = name.substr(7, dot - 7);
                  rest = name.substr(dot + 1);
                }
                if (rest.starts_with("fc.")) return replaced(rest, "fc.", "classifier.1.");
                const bool shortcut = rest.starts_with("downsample.");
                const char number = shortcut ? rest[11] : rest[rest.find_first_of("123")];
                const bool norm = shortcut ? number == '1' : rest.starts_with("bn");
                const std::string kind = norm ? "normalization" : "convolution",
                                  ending = rest.substr(rest.rfind('.') + 1);
                if (!in_layer) return "resnet.embedder.embedder." + kind + "." + ending;
                const std::string at = "resnet.encoder.stages." + stage + ".layers." + block + ".";
                return shortcut ? at + "shortcut." + kind + "." + ending
                                : at + "layer." + std::to_string(number - '1') + "." + kind + "." +
                                      ending;
              }));

  DenseNetOptions dense;
  dense.depths = {2, 1, 1, 1};
  dense.growth = 8;
  dense.stem_channels = 8;
  dense.num_classes = 2;
  DenseNet first(init, dense), second(other, dense);
  check_loads(first, second, renamed(first, [](std::string name) {
                if (name.find("denselayer") == std::string::npos) return name;
                for (const char* part : {"norm", "conv"})
                  for (const char* number : {"1", "2"})
                    name = replaced(name, std::string(part) + number + ".",
                                    std::string(part) + "." + number + ".");
                return name;
              }));
}

TEST_CASE("names that no result depends on are noted, and so are counters that are missing") {
  CifarResNet from = resnet20(1), to = resnet20(2);
  NamedTensors state = state_dict(from);
  std::erase_if(state, [](const auto& e) { return e.first.ends_with("num_batches_tracked"); });
  const StateNotes notes = load_state_dict(to, state);
  CHECK(notes.uncounted.size() == 19);

  Init init = init_of(3);
  Gpt2Options options;
  options.layers = 1;
  options.hidden = 4;
  options.heads = 2;
  options.vocab_size = 5;
  options.context_length = 6;
  Gpt2 net(init, options);
  NamedTensors published;
  for (const auto& [name, tensor] : state_dict(net))
    published.emplace_back(replaced(name, "transformer.", ""), ops::cast(tensor, DType::bf16));
  published.emplace_back("h.0.attn.bias", Tensor::zeros({1, 1, 6, 6}));
  CHECK(load_state_dict(net, published).ignored == std::vector<std::string>{"h.0.attn.bias"});
}

TEST_CASE("other classes: an error with both numbers, and with reset all but the last layer") {
  CifarResNet from = resnet20(1, 10), to = resnet20(2, 4);
  const NamedTensors state = state_dict(from);
  const std::vector<double> before = values(to);
  const std::string what = message_of([&] { load_state_dict(to, state, "some.safetensors"); });
  CAPTURE(what);
  for (const char* part : {"4 classes", "got 10 of some.safetensors", "model.head=reset"})
    CHECK(what.find(part) != std::string::npos);
  CHECK(values(to) == before);

  const auto find = [](Module& net, const std::string& wanted) {
    for (const auto& [name, tensor] : state_dict(net))
      if (name == wanted) return tensor.to_vector();
    return std::vector<double>{};
  };
  const std::vector<double> head = find(to, "linear.weight");
  const StateNotes notes = load_state_dict(to, state, "", {.reset_head = true});
  CHECK(notes.reset == std::vector<std::string>{"linear.bias", "linear.weight"});
  CHECK(notes.left_out.size() == 2);
  CHECK(notes.classes == 4);
  CHECK(notes.classes_of_file == 10);
  CHECK(find(to, "linear.weight") == head);
  CHECK(find(to, "layer3.2.bn2.weight") == find(from, "layer3.2.bn2.weight"));

  // Nothing else is excused.
  CifarResNetOptions wide = cifar_resnet_options("resnet32");
  Init init = init_of(3);
  CifarResNet deeper(init, wide);
  CHECK_THROWS_WITH_AS(load_state_dict(deeper, state, "", {.reset_head = true}),
                       doctest::Contains("missing ("), Error);
}

TEST_CASE(
    "a second head is left out without aux_loss, taken with it, and reset with the first one") {
  DilatedResNetOptions options = dilated_resnet_options("fcn_resnet50");
  options.width = 2;
  options.depths = {1, 1, 1, 1};
  options.num_classes = 5;
  const auto make = [&](uint64_t seed, bool auxiliary) {
    Init init = init_of(seed);
    options.auxiliary = auxiliary;
    return std::make_shared<DilatedResNet>(init, options);
  };
  const auto from = make(1, true);
  const NamedTensors state = state_dict(*from);
  CHECK_FALSE(load_state_dict(*make(2, false), state).ignored.empty());
  const auto same = make(3, true);
  CHECK(load_state_dict(*same, state).ignored.empty());
  CHECK(values(*same) == values(*from));
  options.num_classes = 3;
  const StateNotes notes = load_state_dict(*make(4, true), state, "", {.reset_head = true});
  CHECK(notes.reset == std::vector<std::string>{"aux_classifier.4.bias", "aux_classifier.4.weight",
                                                "classifier.4.bias", "classifier.4.weight"});
}

TEST_CASE("a BERT that guesses words becomes one that tells classes, with a new pooler") {
  BertOptions options;
  options.layers = 1;
  options.hidden = 4;
  options.heads = 2;
  options.vocab_size = 9;
  options.max_positions = 8;
  BertOptions words = options;
  words.head = BertHead::masked_lm;
  Init init = init_of(1);
  Bert from(init, words), to(init, options);
  const NamedTensors state = state_dict(from);
  CHECK_THROWS_WITH_AS(load_state_dict(to, state), doctest::Contains("got no such layer"), Error);
  const StateNotes notes = load_state_dict(to, state, "", {.reset_head = true});
  CHECK(notes.reset == std::vector<std::string>{"bert.pooler.dense.bias",
                                                "bert.pooler.dense.weight", "classifier.bias",
                                                "classifier.weight"});
  CHECK(notes.left_out.size() == 5);
  // The other way the pooler is left out.
  NamedTensors with_pooler = state;
  with_pooler.emplace_back("bert.pooler.dense.weight", Tensor::zeros({4, 4}));
  CHECK(load_state_dict(from, with_pooler).ignored.size() == 1);
  CHECK_THROWS_WITH_AS(load_state_dict(from, state, "", {.reset_head = true}),
                       doctest::Contains("no head of its own"), Error);
}

TEST_CASE("a message lists ten names of each kind, and how many there are") {
  Init init = init_of(1);
  CifarResNet small = resnet20(1);
  ResNet large(init, resnet_options("resnet18"));
  const std::string what = message_of([&] { load_state_dict(large, state_dict(small), "x"); });
  CAPTURE(what);
  CHECK(what.find("missing (") != std::string::npos);
  CHECK(what.find("unexpected (") != std::string::npos);
  CHECK(std::count(what.begin(), what.end(), '\n') <= 3 * 12);
  CHECK(what.find(" more") != std::string::npos);
}

TEST_CASE("a self-supervised run's trunk loads into the network whose trunk it is") {
  const auto trunk = [](Init& init, int64_t classes) {
    CifarResNetOptions options = cifar_resnet_options("resnet20");
    options.num_classes = classes;
    return std::make_shared<CifarResNet>(init, options);
  };
  for (const SelfSupervision method :
       {SelfSupervision::simsiam, SelfSupervision::byol, SelfSupervision::moco_v2}) {
    Init init = init_of(1), other = init_of(2);
    SelfSupervisedOptions options = published_options(method, 64);
    options.projector = {8, 4};
    if (options.predictor > 0) options.predictor = 4;
    if (options.queue > 0) options.queue = 16;
    SelfSupervised net(
        init, [&](Init& at) { return trunk(at, 0); }, 64, options);
    const auto classifier = trunk(other, 10);
    const StateNotes notes =
        load_state_dict(*classifier, state_dict(net), "", {.reset_head = true});
    CHECK(notes.reset == std::vector<std::string>{"linear.bias", "linear.weight"});
    CHECK(!notes.ignored.empty());
    NamedTensors taken = state_dict(*classifier);
    const NamedTensors given = state_dict(net.trunk());
    for (const auto& [name, tensor] : given) {
      const auto found = std::find_if(taken.begin(), taken.end(),
                                      [&n = name](const auto& entry) { return entry.first == n; });
      REQUIRE(found != taken.end());
      CHECK(found->second.to_vector() == tensor.to_vector());
    }
    // The whole network loads into itself, and the trunk's own file into the classifier.
    SelfSupervised again(
        other, [&](Init& at) { return trunk(at, 0); }, 64, options);
    CHECK(load_state_dict(again, state_dict(net)).ignored.empty());
    CHECK(values(again) == values(net));
    CHECK(load_state_dict(*classifier, given, "", {.reset_head = true}).ignored.empty());
  }
  // Without a trunk in the file such names are no one's.
  Init init = init_of(3);
  const auto classifier = trunk(init, 10);
  NamedTensors state = state_dict(*classifier);
  state.emplace_back("predictor.0.weight", Tensor::zeros({2}));
  CHECK_THROWS_WITH_AS(load_state_dict(*classifier, state), doctest::Contains("unexpected"), Error);
}
