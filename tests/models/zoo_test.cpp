#include <doctest/doctest.h>

#include <set>

#include "autograd/engine.h"
#include "autograd/record.h"
#include "models/state.h"
#include "models/zoo/mlp.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;

namespace {

using zoo::parameter_count;

std::set<std::string> state_names(Module& module) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : state_dict(module)) names.insert(name);
  return names;
}

int64_t count_of(const std::string& name) {
  Init init;
  init.device = kMeta;
  ResNet net(init, resnet_options(name));
  return parameter_count(net);
}

Variable image(int64_t n, int64_t side, int64_t channels, Device device = kCpu) {
  CategoryScope scope(Category::input);
  Tensor x = Tensor::empty({n, side, side, channels}, DType::f32, device);
  if (float* values = x.mut<float>(); values != nullptr)
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = normal({5, 6}, static_cast<uint64_t>(i));
  return Variable(x);
}

}  // namespace

TEST_CASE("torchvision's parameter counts") {
  CHECK(count_of("resnet18") == 11689512);
  CHECK(count_of("resnet34") == 21797672);
  CHECK(count_of("resnet50") == 25557032);
  CHECK(count_of("resnet101") == 44549160);
  CHECK(count_of("resnet152") == 60192808);
  CHECK(count_of("wide_resnet50_2") == 68883240);
  CHECK(count_of("wide_resnet101_2") == 126886696);
  CHECK_THROWS_WITH_AS(resnet_options("resnet19"), doctest::Contains("resnet18"), Error);
}

TEST_CASE("deeper and wider ResNets: blocks in the second and third stage, inner channels") {
  const auto deepened = [](const char* name, int64_t layers) {
    ResNetOptions options = resnet_options(name);
    deepen(options, layers);
    return options;
  };
  using Depths = std::array<int64_t, 4>;
  CHECK(deepened("resnet50", 50).depths == Depths{3, 4, 6, 3});
  CHECK(deepened("resnet34", 34).depths == Depths{3, 4, 6, 3});
  CHECK(deepened("resnet18", 22).depths == Depths{2, 3, 3, 2});
  // ActNN's largest ResNet-152, "depth 1016": 864 blocks more, of which 157 in the second stage.
  CHECK(deepened("resnet152", 152 + 3 * 864).depths == Depths{3, 8 + 157, 36 + 707, 3});
  for (const int64_t wrong : {0, 47, 51, 52})
    CHECK_THROWS_WITH_AS(deepened("resnet50", wrong), doctest::Contains("[resnet] expected 50"),
                         Error);
  const auto lines = [](const ResNetOptions& options) {
    Init init = zoo::meta_init();
    ResNet net(init, options);
    return zoo::lines_of(net);
  };
  // Equal counts and shapes; torchvision's wide_resnet50_2 is resnet50 with width_per_group 128.
  ResNetOptions wide = resnet_options("resnet50");
  wide.width = 128;
  CHECK(lines(wide) == lines(resnet_options("wide_resnet50_2")));
  ResNetOptions narrow = resnet_options("resnet18");
  narrow.width = 32;
  const auto names = lines(narrow);
  CHECK(names.contains("conv1.weight [32, 3, 7, 7]"));
  CHECK(names.contains("layer4.1.conv2.weight [256, 256, 3, 3]"));
  CHECK(names.size() == lines(resnet_options("resnet18")).size());
}

TEST_CASE("the CIFAR networks' parameter counts and depths") {
  Init init;
  CifarResNetOptions options = cifar_resnet_options("resnet20");
  CifarResNet a(init, options);
  CHECK(parameter_count(a) == 269722);
  options.shortcut = Shortcut::B;
  CifarResNet b(init, options);
  CHECK(parameter_count(b) == 269722 + (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64));
  options.width = 32;
  CifarResNet wide(init, options);
  CHECK(zoo::lines_of(wide).contains("layer3.0.conv1.weight [128, 64, 3, 3]"));
  CHECK(cifar_resnet_options("resnet110").blocks == 18);
  CHECK_THROWS_AS(cifar_resnet_options("resnet21"), Error);
}

TEST_CASE("names are the reference libraries'") {
  Init init;
  init.device = kMeta;
  ResNet net(init, resnet_options("resnet50"));
  std::set<std::string> names;
  for (const auto& p : net.parameters()) names.insert(p.name);
  for (const auto& b : net.buffers()) names.insert(b.name);
  CHECK(names.size() == 320);  // torchvision's resnet50().state_dict()
  for (const char* name : {"conv1.weight", "bn1.running_var", "layer1.0.downsample.0.weight",
                           "layer1.0.downsample.1.num_batches_tracked", "layer3.5.conv3.weight",
                           "layer4.2.bn3.bias", "fc.weight", "fc.bias"})
    CHECK_MESSAGE(names.contains(name), name);
  Init real;
  CifarResNetOptions options = cifar_resnet_options("resnet20");
  options.shortcut = Shortcut::B;
  CifarResNet small(real, options);
  const auto small_names = state_names(small);
  for (const char* name : {"conv1.weight", "bn1.weight", "layer2.0.shortcut.0.weight",
                           "layer2.0.shortcut.1.running_mean", "layer3.2.bn2.bias", "linear.bias"})
    CHECK_MESSAGE(small_names.contains(name), name);
}

TEST_CASE("a state dict is in PyTorch's layout and comes back bit for bit") {
  Init init, other;
  other.rng = Rng(1);
  CifarResNet a(init, cifar_resnet_options("resnet20")), b(other, cifar_resnet_options("resnet20"));
  const NamedTensors state = state_dict(a);
  const Tensor& file = state.front().second;
  CHECK(state.front().first == "conv1.weight");
  CHECK(file.shape() == Shape{16, 3, 3, 3});
  const Tensor& here = a.parameters().front().parameter->value();
  CHECK(file.select(0, 5).select(0, 2).select(0, 1).item(0) ==
        here.select(0, 5).select(0, 1).select(0, 0).item(2));
  load_state_dict(b, state);
  const NamedTensors again = state_dict(b);
  for (size_t i = 0; i < state.size(); ++i)
    REQUIRE(again[i].second.to_vector() == state[i].second.to_vector());
}

TEST_CASE("weights that do not fit are listed and change nothing") {
  Init init;
  CifarResNet net(init, cifar_resnet_options("resnet20"));
  NamedTensors state = state_dict(net);
  const double before = net.parameters().front().parameter->value().item(0);
  state[0].second = Tensor::zeros({16, 4, 3, 3});
  state[1].first = "bn1.gamma";
  state.emplace_back("extra", Tensor::zeros({1}));
  try {
    load_state_dict(net, state);
    FAIL("expected an Error");
  } catch (const Error& error) {
    const std::string text = error.what();
    CHECK(text.find("missing (1):\n    bn1.weight") != std::string::npos);
    CHECK(text.find("unexpected (2):") != std::string::npos);
    CHECK(text.find("conv1.weight: expected [16, 3, 3, 3], got [16, 4, 3, 3]") !=
          std::string::npos);
  }
  CHECK(net.parameters().front().parameter->value().item(0) == before);
}

TEST_CASE("every small network runs forward and backward") {
  for (const char* name : {"resnet20", "preact_resnet56"}) {
    for (Shortcut shortcut : {Shortcut::A, Shortcut::B}) {
      CAPTURE(name);
      Init init;
      CifarResNetOptions options = cifar_resnet_options(name);
      options.shortcut = shortcut;
      options.num_classes = 7;
      CifarResNet net(init, options);
      Context context;
      const Variable y = net.forward(image(2, 8, 3), context);
      CHECK(y.shape() == Shape{2, 7});
      backward(sum(y));
      for (const auto& p : net.parameters()) CHECK_MESSAGE(p.parameter->grad().defined(), p.name);
      for (const auto& b : net.buffers())
        if (b.name.ends_with("num_batches_tracked")) CHECK(b.buffer->item() == 1);
    }
  }
}

TEST_CASE("resnet50 is planned on meta: bytes and no memory") {
  Init init;
  init.device = kMeta;
  ResNet net(init, resnet_options("resnet50"));
  Context context;
  const int64_t before = allocator(kMeta).report().of(Category::activation);
  const Variable y = net.forward(image(64, 224, 3, kMeta), context);
  CHECK(y.shape() == Shape{64, 1000});
  // Without a policy every norm input, norm output and block output is kept: at least 80 MB an
  // image.
  CHECK(allocator(kMeta).report().of(Category::activation) - before > int64_t{64} * 70'000'000);
  backward(sum(y));
  CHECK(net.parameters().front().parameter->grad().shape() == Shape{64, 7, 7, 3});
}

TEST_CASE("eval mode uses the running statistics and leaves them alone") {
  Init init;
  ResNetOptions options = resnet_options("resnet18");
  options.stem = Stem::cifar;
  options.num_classes = 4;
  ResNet net(init, options);
  Context train, eval;
  eval.training = false;
  const Variable x = image(4, 8, 3);
  NoGrad no_grad;
  const auto first = net.forward(x, eval).value().to_vector();
  net.forward(x, train);
  const auto second = net.forward(x, eval).value().to_vector();
  CHECK(first != second);
  CHECK(net.forward(x, eval).value().to_vector() == second);
}

TEST_CASE("an mlp flattens, drops out by its stream and names its layers") {
  Init init;
  MlpOptions options;
  options.in_features = 12;
  options.hidden = {8, 6};
  options.num_classes = 3;
  options.dropout = 0.5;
  Mlp net(init, options);
  CHECK(state_names(net) == std::set<std::string>{"fc1.weight", "fc1.bias", "fc2.weight",
                                                  "fc2.bias", "fc3.weight", "fc3.bias"});
  const Variable x = image(5, 2, 3);
  Context context;
  CHECK_THROWS_WITH_AS(net.forward(x, context), doctest::Contains("random stream"), Error);
  Rng rng(3), same(3), different(4);
  context.rng = &rng;
  const auto y = net.forward(x, context).value().to_vector();
  context.rng = &same;
  CHECK(net.forward(x, context).value().to_vector() == y);
  context.rng = &different;
  CHECK(net.forward(x, context).value().to_vector() != y);
  CHECK_THROWS_WITH_AS(net.forward(image(5, 3, 3), context),
                       doctest::Contains("expected 12 features"), Error);
}
