#include "models/zoo/hrnet.h"

#include <doctest/doctest.h>

#include <set>

#include "autograd/engine.h"
#include "autograd/functions.h"

namespace frugal::models {
namespace {

// The published networks for 19 classes: 9.6 and 65.9 million parameters (Wang et al. 2020, table
// 3, without the auxiliary heads of other networks).
TEST_CASE("HRNet has the published number of parameters and the authors' names") {
  for (const auto& [name, millions] :
       {std::pair<const char*, double>{"hrnet_w18", 9.6}, {"hrnet_w48", 65.9}}) {
    Init init{Rng(1), kMeta};
    HrNet network(init, hrnet_options(name));
    double count = 0;
    std::set<std::string> names;
    for (const auto& p : network.parameters()) {
      count += static_cast<double>(p.parameter->value().numel());
      names.insert(p.name);
    }
    CHECK(count / 1e6 == doctest::Approx(millions).epsilon(0.01));
    for (const char* expected :
         {"conv2.weight", "bn2.bias", "layer1.0.downsample.0.weight", "layer1.3.conv3.weight",
          "transition1.0.0.weight", "transition1.1.0.1.bias", "transition3.3.0.0.weight",
          "stage2.0.branches.1.3.conv2.weight", "stage3.3.fuse_layers.0.2.0.weight",
          "stage4.2.fuse_layers.3.0.2.1.weight", "last_layer.0.bias", "last_layer.3.weight"})
      CHECK_MESSAGE(names.contains(expected), expected);
  }
  CHECK_THROWS_WITH_AS(hrnet_options("hrnet_w1"), doctest::Contains("hrnet_w18"), Error);
}

TEST_CASE("HRNet gives an output for each pixel, of sizes that 32 does not divide, too") {
  Init init{Rng(1)};
  HrNetOptions options;
  options.width = 4;
  options.num_classes = 5;
  HrNet network(init, options);
  Rng rng(3);
  Context context;
  context.rng = &rng;
  const Tensor image = Tensor::full({2, 36, 50, 3}, 0.5);
  const Variable y = network.forward(Variable(image), context);
  CHECK(y.shape() == Shape{2, 36, 50, 5});
  backward(sum(mul(y, y)));
  for (const auto& p : network.parameters()) CHECK_MESSAGE(p.parameter->has_grad(), p.name);
}

}  // namespace
}  // namespace frugal::models
