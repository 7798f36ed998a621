#include "models/zoo/alexnet.h"

#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

TEST_CASE("alexnet: names, shapes and the number of parameters are torchvision's") {
  Init init = meta_init();
  AlexNet net(init, {});
  CHECK(parameter_count(net) == 61100840);
  CHECK(lines_of(net) ==
        std::set<std::string>{"features.0.weight [64, 3, 11, 11]", "features.0.bias [64]",
                              "features.3.weight [192, 64, 5, 5]", "features.3.bias [192]",
                              "features.6.weight [384, 192, 3, 3]", "features.6.bias [384]",
                              "features.8.weight [256, 384, 3, 3]", "features.8.bias [256]",
                              "features.10.weight [256, 256, 3, 3]", "features.10.bias [256]",
                              "classifier.1.weight [4096, 9216]", "classifier.1.bias [4096]",
                              "classifier.4.weight [4096, 4096]", "classifier.4.bias [4096]",
                              "classifier.6.weight [1000, 4096]", "classifier.6.bias [1000]"});
  Context context;
  context.training = false;
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 32, 64, 3}, 1, kMeta), context),
                       doctest::Contains("at least 63 x 63"), Error);
}

TEST_CASE("alexnet: a step learns, weights go out and in, checkpointing gives the same gradients") {
  Init init, other;
  other.rng = Rng(5);
  const AlexNetOptions options{.hidden = 32, .num_classes = 3};
  AlexNet net(init, options), copy(other, options);
  const Variable x = randn({4, 63, 63, 3}, 2);
  const Tensor target = ids({4}, 3, 1);
  const auto loss = [&](const Variable& y) { return cross_entropy(y, target); };
  check_trains(net, copy, x, {}, loss, 0.05);
}
