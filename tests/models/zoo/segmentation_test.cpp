// Networks that give a class to each pixel: names, shapes, sizes that strides do not divide.
#include "models/zoo/dilated_resnet.h"
#include "models/zoo/dilation8.h"
#include "models/zoo/drn.h"
#include "models/zoo/semantic_fpn.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

template <class Options>
Options small(Options options) {
  options.depths.fill(1);
  options.width = 4;
  options.num_classes = 3;
  return options;
}

// The network gives [2, 25, 38, classes], and each of its parameters gets a gradient.
void check_pixels(Module& net, int64_t classes) {
  Rng rng(3);
  Context context;
  context.rng = &rng;
  const Variable y = net.forward(randn({2, 25, 38, 3}, 1), context);
  CHECK(y.shape() == Shape{2, 25, 38, classes});
  backward(sum(mul(y, y)));
  for (const auto& p : net.parameters()) CHECK_MESSAGE(p.parameter->has_grad(), p.name);
}

void check_lines(Module& net, const std::vector<std::string>& expected) {
  const auto lines = lines_of(net);
  for (const std::string& line : expected) CHECK_MESSAGE(lines.contains(line), line);
}

}  // namespace

TEST_CASE("FCN and DeepLabv3: names and shapes are torchvision's") {
  // torchvision_zoo_names.py
  check_published<DilatedResNet>(dilated_resnet_options,
                                 {{"fcn_resnet50", 32957013, 326, 0xd1a216f531130b18},
                                  {"fcn_resnet101", 51949141, 632, 0x8dcd8c7458c0fc19},
                                  {"deeplabv3_resnet50", 39638869, 362, 0x785d93a0f651733e},
                                  {"deeplabv3_resnet101", 58630997, 668, 0x61ffc59004cb89b1}});
  const auto with_second_head = [](const std::string& name) {
    DilatedResNetOptions options = dilated_resnet_options(name);
    options.auxiliary = true;
    return options;
  };
  check_published<DilatedResNet>(with_second_head,
                                 {{"fcn_resnet50", 35322218, 334, 0x5a5e9fc0ede1b906},
                                  {"deeplabv3_resnet50", 42004074, 370, 0x8cf59958e1c37d74}});
  CHECK_THROWS_WITH_AS(dilated_resnet_options("fcn_resnet18"), doctest::Contains("fcn_resnet50"),
                       Error);
}

TEST_CASE("FCN and DeepLabv3: an output for each pixel, and a second one in training") {
  for (const char* name : {"fcn_resnet50", "deeplabv3_resnet50"}) {
    CAPTURE(name);
    Init init;
    DilatedResNetOptions options = small(dilated_resnet_options(name));
    DilatedResNet net(init, options);
    check_pixels(net, 3);
    options.auxiliary = true;
    DilatedResNet two(init, options);
    Rng rng(3);
    Context context;
    context.rng = &rng;
    const ResizedModule::Small out = two.before_resize(randn({2, 25, 38, 3}, 1), context);
    CHECK(out.output().shape() == Shape{2, 25, 38, 3});
    REQUIRE(out.auxiliary.defined());
    CHECK(out.auxiliary.shape() == out.logits.shape());
    backward(add(sum(mul(out.logits, out.logits)), sum(mul(out.auxiliary, out.auxiliary))));
    for (const auto& p : two.parameters()) CHECK_MESSAGE(p.parameter->has_grad(), p.name);
    context.training = false;
    CHECK(!two.before_resize(randn({2, 25, 38, 3}, 1), context).auxiliary.defined());
  }
}

TEST_CASE("the dilated trunk keeps an 8th of the resolution") {
  Init init = meta_init();
  ResNetTrunkOptions options;
  options.dilated = {false, true, true};
  Context context;
  const auto side = [&](size_t stage) {
    ResNetTrunk trunk(init, options);
    return trunk.stages(randn({1, 64, 64, 3}, 1, kMeta), context, {true, true, true, true})[stage]
        .size(1);
  };
  CHECK(side(0) == 16);
  CHECK(side(3) == 8);
  options.dilated = {};
  CHECK(side(3) == 2);
}

TEST_CASE("semantic FPN: mmsegmentation's names, an output for each pixel") {
  Init meta = meta_init();
  SemanticFpn whole(meta, semantic_fpn_options("fpn_resnet50"));
  check_lines(whole, {"backbone.stem.0.weight [32, 3, 3, 3]", "backbone.stem.7.running_var [64]",
                      "backbone.layer1.0.downsample.1.bias [256]",
                      "backbone.layer4.2.conv3.weight [2048, 512, 1, 1]",
                      "neck.lateral_convs.3.conv.weight [256, 2048, 1, 1]",
                      "neck.fpn_convs.0.conv.bias [256]",
                      "decode_head.scale_heads.0.0.conv.weight [128, 256, 3, 3]",
                      "decode_head.scale_heads.3.4.conv.weight [128, 128, 3, 3]",
                      "decode_head.scale_heads.2.2.bn.running_mean [128]",
                      "decode_head.conv_seg.weight [19, 128, 1, 1]"});
  CHECK(static_cast<double>(parameter_count(whole)) / 1e6 == doctest::Approx(28.5).epsilon(0.002));
  Init init;
  SemanticFpn net(init, small(semantic_fpn_options("fpn_resnet101")));
  check_pixels(net, 3);
  CHECK_THROWS_WITH_AS(semantic_fpn_options("fpn"), doctest::Contains("fpn_resnet50"), Error);
}

TEST_CASE("DRN: the authors' names, and bilinear weights that do not train") {
  Init meta = meta_init();
  Drn whole(meta, drn_options("drn_d_22"));
  check_lines(whole, {"base.0.0.weight [16, 3, 7, 7]", "base.1.0.weight [16, 16, 3, 3]",
                      "base.2.1.running_mean [32]", "base.3.0.downsample.0.weight [64, 32, 1, 1]",
                      "base.6.1.conv2.weight [512, 512, 3, 3]", "base.8.0.weight [512, 512, 3, 3]",
                      "seg.bias [19]", "up.weight [19, 1, 16, 16]"});
  Init init;
  DrnOptions options = drn_options("drn_d_22");
  options.depths.fill(1);
  options.num_classes = 2;
  Drn net(init, options);
  for (const auto& p : net.parameters()) CHECK(p.name != "up.weight");
  // Away from the border, a constant stays as it is.
  for (const auto& b : net.buffers()) {
    if (b.name != "up.weight") continue;
    double sum = 0;  // sum of the four cells that reach a pixel
    for (const int64_t at : {0 * 16 + 0, 0 * 16 + 8, 8 * 16 + 0, 8 * 16 + 8})
      sum += b.buffer->item(at);
    CHECK(sum == doctest::Approx(1));
  }
  check_pixels(net, 2);
  CHECK_THROWS_WITH_AS(drn_options("drn_c_26"), doctest::Contains("drn_d_22"), Error);
}

TEST_CASE("Dilation8: a VGG-16 front end and a context module that begins as the identity") {
  Init meta = meta_init();
  Dilation8 whole(meta, {});
  check_lines(whole,
              {"conv1_1.weight [64, 3, 3, 3]", "conv5_3.bias [512]", "fc6.weight [4096, 512, 7, 7]",
               "fc7.weight [4096, 4096, 1, 1]", "final.weight [21, 4096, 1, 1]",
               "ctx_conv1_2.weight [21, 21, 3, 3]", "ctx_conv5_1.bias [21]",
               "ctx_fc1.weight [21, 21, 3, 3]", "ctx_final.weight [21, 21, 1, 1]"});
  CHECK(lines_of(whole).size() == 2 * (13 + 3 + 8));
  Init init;
  Dilation8Options options;
  options.hidden = 8;
  options.num_classes = 2;
  Dilation8 net(init, options);
  for (const auto& p : net.parameters())
    if (p.name == "ctx_fc1.weight") {
      double sum = 0;
      for (const double v : p.parameter->value().to_vector()) sum += v;
      CHECK(sum == 2);
      CHECK(p.parameter->value().item(4 * 2) == 1);  // the centre of the first output
    }
  check_pixels(net, 2);
}
