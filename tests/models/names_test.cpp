// Every name and shape of torchvision's state dicts, as fingerprints from torchvision_names.py.
#include <doctest/doctest.h>

#include "models/state.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;

TEST_CASE("all names and shapes are torchvision's") {
  const struct {
    const char* name;
    size_t tensors;
    uint64_t fingerprint;
  } expected[] = {
      {"resnet18", 122, 0x6ea2f393dbdf6cf4},         {"resnet34", 218, 0x8c4205da3490ade6},
      {"resnet50", 320, 0x3daba3a4e389aa02},         {"resnet101", 626, 0xab7893c2f3cc6739},
      {"resnet152", 932, 0x91c9b7037239e1aa},        {"wide_resnet50_2", 320, 0x9a72d257bff94d12},
      {"wide_resnet101_2", 626, 0x82c61b981e30fdd9},
  };
  for (const auto& row : expected) {
    CAPTURE(row.name);
    Init init;
    init.device = kMeta;
    ResNet net(init, resnet_options(row.name));
    const auto lines = zoo::lines_of(net);
    CHECK(lines.size() == row.tensors);
    CHECK(zoo::fingerprint(lines) == row.fingerprint);
  }
}

TEST_CASE("the options change shapes and not names") {
  Init init;
  init.device = kMeta;
  ResNetOptions options = resnet_options("resnet18");
  options.stem = Stem::cifar;
  options.in_channels = 1;
  options.num_classes = 10;
  ResNet net(init, options);
  const NamedTensors state = state_dict(net);
  CHECK(state.size() == 122);
  CHECK(state.front().first == "conv1.weight");
  CHECK(state.front().second.shape() == Shape{64, 1, 3, 3});
}

TEST_CASE("one block of the small networks, name by name") {
  Init init;
  init.device = kMeta;
  const auto block_of = [&](CifarResNetOptions options) {
    CifarResNet net(init, options);
    std::vector<std::string> names;
    for (const auto& p : net.parameters())
      if (p.name.starts_with("layer2.0.")) names.push_back(p.name.substr(9));
    return names;
  };
  using Names = std::vector<std::string>;
  CifarResNetOptions options = cifar_resnet_options("resnet20");
  CHECK(block_of(options) ==
        Names{"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight", "bn2.weight", "bn2.bias"});
  options.shortcut = Shortcut::B;
  CHECK(block_of(options) == Names{"conv1.weight", "bn1.weight", "bn1.bias", "conv2.weight",
                                   "bn2.weight", "bn2.bias", "shortcut.0.weight",
                                   "shortcut.1.weight", "shortcut.1.bias"});
  options = cifar_resnet_options("preact_resnet56");
  CHECK(block_of(options) ==
        Names{"bn1.weight", "bn1.bias", "conv1.weight", "bn2.weight", "bn2.bias", "conv2.weight"});
  CifarResNet preact(init, options);
  CHECK(preact.parameters().front().name == "conv1.weight");
  CHECK(preact.parameters()[1].name == "layer1.0.bn1.weight");
  CHECK(preact.parameters()[preact.parameters().size() - 4].name == "bn.weight");
}
