#include "models/registry.h"

#include "models/sequential/sequential.h"
#include "models/zoo/resnet.h"
#include "models/zoo/vit.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;

namespace {

std::shared_ptr<Module> on_meta(const std::string& name, const Options& options = {}) {
  Init init = zoo::meta_init();
  return models::make(name, options, init);
}

}  // namespace

TEST_CASE("every network of the table is made under its name, with the options of its struct") {
  CHECK(networks().size() > 60);
  for (const Network& each : networks()) {
    CAPTURE(each.name);
    const bool listed = each.name == "sequential";
    const Options options =
        listed ? Options{{"modules", Value::List{"flatten", layer("linear", 10)}}} : Options();
    CHECK(zoo::parameter_count(*on_meta(each.name, options)) > 0);
    CHECK(models::family_of(each.name, options) == each.traits.family);
    CHECK(is_network(each.name));
    for (const Key& key : each.keys) {
      CAPTURE(key.name);
      CHECK(std::string(key.help).ends_with("."));
      CHECK(has_option(each.name, {}, key.name));
      CHECK_FALSE(readers_of(key.name).empty());
      const Value usual = each.usual(key.name);
      if (!usual.is_nothing() && usual != 0) CHECK(fits(key.range, usual));
      if (key.by == Key::fixed) CHECK(usual == default_of(key.name));
    }
  }
}

TEST_CASE("ranks take the statistics of batch norms from rank 0, and nothing that all have") {
  for (const Network& each : networks()) {
    if (each.name == "sequential") continue;
    CAPTURE(each.name);
    for (const Module::NamedBuffer& b : on_meta(each.name)->buffers()) {
      CAPTURE(b.name);
      const bool counts = b.name.ends_with("running_mean") || b.name.ends_with("running_var") ||
                          b.name.ends_with("num_batches_tracked");
      CHECK((b.use == Module::BufferUse::statistics) == counts);
    }
  }
}

TEST_CASE("options reach the struct: the network is that of the struct with these members") {
  VitOptions members = vit_options("vit_b_16");
  members.layers = 2;
  members.hidden = 48;
  members.heads = 4;
  members.mlp = 64;
  members.image = 32;
  members.num_classes = 7;
  Init init = zoo::meta_init();
  Vit by_members(init, members);
  const auto by_name = on_meta("vit_b_16", {{"layers", 2},
                                            {"width", 48},
                                            {"heads", 4},
                                            {"feed_forward", 64},
                                            {"image", 32},
                                            {"num_classes", 7}});
  CHECK(zoo::lines_of(*by_name) == zoo::lines_of(by_members));
  ResNetOptions deep = resnet_options("resnet18");
  deepen(deep, 22);
  deep.stem = Stem::cifar;
  ResNet deeper(init, deep);
  CHECK(zoo::lines_of(*on_meta("resnet18", {{"layers", 22}, {"stem", "cifar"}})) ==
        zoo::lines_of(deeper));
  // Names of enumerators, lists of numbers, and options of the network within another.
  CHECK(zoo::lines_of(*on_meta("mlp", {{"hidden", std::vector<int64_t>{3}}, {"in_features", 5}}))
            .contains("fc1.weight [3, 5]"));
  CHECK(zoo::lines_of(*on_meta("simsiam", {{"trunk", "resnet18"}, {"stem", "cifar"}}))
            .contains("trunk.conv1.weight [64, 3, 3, 3]"));
  CHECK(zoo::lines_of(*on_meta("retinanet_resnet50_fpn", {{"trunk", "resnet18"}}))
            .contains("backbone.body.layer4.1.conv2.weight [512, 512, 3, 3]"));
  CHECK(zoo::parameter_count(*on_meta("gcn", {{"jump", "cat"}, {"layers", 3}})) >
        zoo::parameter_count(*on_meta("gcn", {{"layers", 3}})));
}

TEST_CASE(
    "what a network cannot have is refused, with the option, what was expected and what came") {
  const auto refuses = [](const char* name, const Options& options, const char* message) {
    CAPTURE(message);
    CHECK_THROWS_WITH_AS(on_meta(name, options), doctest::Contains(message), OptionError);
    CHECK_THROWS_WITH_AS(models::check(name, options), doctest::Contains(message), OptionError);
  };
  refuses("unet", {{"widht", 8}},
          "unet.widht: expected an option of unet, one of width, in_channels, num_classes; got "
          "\"widht\"");
  refuses("vgg16", {{"dropout", 1.5}}, "vgg16.dropout: expected a number in [0.0, 1.0), got 1.5");
  refuses("vgg16", {{"width", 0}}, "vgg16.width: expected an integer in [1, 1048576], got 0");
  refuses("vgg16", {{"width", "wide"}}, "got \"wide\"");
  refuses("gcn", {{"batch_norm", 1}}, "gcn.batch_norm: expected true or false, got 1");
  refuses("gcn", {{"jump", "sum"}}, "gcn.jump: expected one of none, cat, max, got \"sum\"");
  refuses("mlp", {{"hidden", std::vector<int64_t>{8, 0}}},
          "mlp.hidden[1]: expected an integer in [1, 1048576], got 0");
  refuses("gcnii", {{"theta", 0}}, "gcnii.theta: expected a number in (0.0, 100.0], got 0");
  refuses("gcnii", {{"input_dropout", 0.5}}, "gcnii.input_dropout: expected an option of gcnii");
  refuses("resnet20", {{"layers", 21}}, "resnet20.layers: expected 6 n + 2, such as 20, got 21");
  refuses("resnet50", {{"layers", 51}}, "resnet50.layers: expected 50 layers, or more by");
  refuses("retinanet_resnet50_fpn", {{"trunk", "resnet20"}}, "got resnet20");
  refuses("simsiam", {{"trunk", "vgg16"}}, "trunk: expected one of resnet20, resnet32");
  refuses("simsiam", {{"queue", 9}}, "simsiam.queue: expected an option of simsiam");
  CHECK_THROWS_WITH_AS(on_meta("resnet19"), doctest::Contains("got \"resnet19\""), Error);
}

TEST_CASE("a network that is a list of layers, without a configuration") {
  const Value::List modules = {
      layer("conv2d", {{"out_channels", 4}, {"kernel_size", 3}, {"padding", "same"}}),
      "relu",
      layer("residual", Value::List{"batch_norm"}),
      layer("max_pool2d", 2),
      "mean_pool",
      "linear"};
  const Options options = {
      {"modules", modules}, {"sample", std::vector<int64_t>{8, 8, 1}}, {"num_classes", 3}};
  const auto network = on_meta("sequential", options);
  CHECK(zoo::parameter_names(*network) == std::vector<std::string>{"0.weight", "0.bias",
                                                                   "2.0.weight", "2.0.bias",
                                                                   "5.weight", "5.bias"});
  CHECK(models::has_blocks("sequential", options));
  CHECK(models::family_of("sequential", {{"modules", Value::List{layer("embedding", 8)}}}) ==
        Family::decoder);
  Init init = zoo::meta_init();
  const auto refuses = [&](const Value::List& layers, const char* message) {
    CHECK_THROWS_WITH_AS(make_sequential(init, {.modules = layers, .sample = {8, 8, 1}}),
                         doctest::Contains(message), OptionError);
  };
  refuses({}, "modules: expected the layers of the network");
  CHECK_THROWS_WITH_AS(
      make_sequential(init, {.modules = {layer("embedding", 8), "linear"}, .ids = true}),
      doctest::Contains("modules[0].embedding.num_embeddings: expected a number"), OptionError);
  CHECK_THROWS_WITH_AS(make_sequential(init, {.modules = {"flatten"}, .sample = {}}),
                       doctest::Contains("sample: expected an image"), OptionError);
  refuses({"relu", 3}, "modules[1]: expected one layer");
  refuses({layer("conv", 3)}, "modules[0]: unknown layer \"conv\"; the nearest one is 'conv2d'");
  refuses({layer("dropout", 1)}, "modules[0].dropout: expected a number in [0.0, 1.0), got 1");
  refuses({layer("dropout", {{"q", 0.5}})}, "modules[0].dropout.q: unknown key");
  refuses({layer("linear", 10)}, "modules[0].linear: expected a row");
  refuses({layer("residual", Value::List{layer("linear", "x")})},
          "modules[0].residual[0].linear: expected an integer in [1, 1048576] or null, got \"x\"");
  CHECK_THROWS_WITH_AS(
      on_meta("sequential", {{"modules", Value::List{layer("max_pool2d", 0)}}}),
      doctest::Contains("sequential.modules[0].max_pool2d: expected an integer in [1, 16384]"),
      OptionError);
}

TEST_CASE("sizes that a network takes") {
  CHECK(sizes("resnet50", {}).least_layers == 50);
  CHECK(sizes("resnet50", {{"layers", 53}}).least_layers == 50);
  CHECK(sizes("resnet18", {}).layers_step == 2);
  CHECK(sizes("resnet20", {}).layers_step == 6);
  CHECK(sizes("simsiam", {{"trunk", "resnet18"}}).layers_step == 2);
  CHECK(sizes("gat", {{"heads", 4}}).width_step == 4);
  CHECK(sizes("vit_b_32", {}).side_step == 32);
  CHECK(sizes("swin_t", {}).width_step == 4);
  CHECK(sizes("unet", {}).least_side == 16);
}

TEST_CASE("who has an option: kinds by name, or a group of kinds") {
  CHECK(readers_of("stem") == "resnet18 and larger");
  CHECK(readers_of("heads") == "ViT, BERT, GPT-2, decoder and gat");
  CHECK(readers_of("batch_norm") == "graph networks");
  CHECK(readers_of("anchor_side") == "detection networks");
  CHECK(readers_of("input_dropout") == "gcn, sage and gat");
  CHECK(readers_of("momentum") == "byol and moco_v2");
  CHECK(readers_of("layers") == "ResNets, ViT, BERT, GPT-2, decoder and graph networks");
}
