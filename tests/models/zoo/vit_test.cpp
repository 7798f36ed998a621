#include "models/zoo/vit.h"

#include "ops/dense/reduce.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;
using namespace frugal::zoo;

namespace {

VitOptions small_vit() { return {4, 2, 2, 16, 24, 12, 3, 5}; }

}  // namespace

TEST_CASE("vit: parameter counts, names and shapes are torchvision's") {
  check_published<Vit>(vit_options, {
                                        {"vit_b_16", 86567656, 152, 0x6512e108ff558aa4},
                                        {"vit_b_32", 88224232, 152, 0x69638a7ed67faf8c},
                                        {"vit_l_16", 304326632, 296, 0xe3feff3e15c94568},
                                    });
  CHECK_THROWS_WITH_AS(vit_options("vit"), doctest::Contains("vit_b_16"), Error);
}

TEST_CASE("vit: planned on meta; images and options that do not fit are refused") {
  Init init = meta_init();
  Vit net(init, vit_options("vit_b_16"));
  Context context;
  check_runs_on_meta(net, randn({2, 224, 224, 3}, 1, kMeta), {2, 1000});
  CHECK_THROWS_WITH_AS(net.forward(randn({2, 224, 192, 3}, 1, kMeta), context),
                       doctest::Contains("[N, 224, 224, C]"), Error);
  VitOptions odd = small_vit();
  odd.image = 13;
  CHECK_THROWS_WITH_AS(Vit(init, odd), doctest::Contains("multiple of the patch 4, got 13"), Error);
  odd = small_vit();
  odd.heads = 3;
  CHECK_THROWS_WITH_AS(Vit(init, odd), doctest::Contains("heads"), Error);
}

TEST_CASE("vit: initial logits are 0, and they depend on where patches are") {
  Init init;
  Vit net(init, small_vit());
  Context context;
  context.training = false;
  NoGrad no_grad;
  const Variable x = randn({1, 12, 12, 3}, 2);
  for (const double logit : net.forward(x, context).value().to_vector()) CHECK(logit == 0);
  for (const auto& p : net.parameters())
    if (p.name == "heads.head.weight") p.parameter->set_value(randn({5, 16}, 3).value());
  const Tensor y = net.forward(x, context).value();
  // Two patches change places.
  const Tensor left = x.value().slice(2, 0, 4), right = x.value().slice(2, 4, 8),
               rest = x.value().slice(2, 8, 12);
  const Variable swapped = concat({Variable(right), Variable(left), Variable(rest)}, 2);
  CHECK(largest_difference(y, net.forward(swapped, context).value()) > 1e-4);
}

TEST_CASE("vit: stochastic depth leaves out the last block for some samples, in training alone") {
  VitOptions options;
  options.image = 8;
  options.patch = 4;
  options.layers = 2;
  options.hidden = 6;
  options.heads = 2;
  options.num_classes = 3;
  options.stochastic_depth = 0.5;
  Init init{Rng(1)};
  Vit net(init, options);
  Rng values(2);
  for (const auto& p : net.parameters())  // the head begins with zeros
    p.parameter->set_value(Tensor::randn(p.parameter->shape(), values.next()));
  // The batch is one sample eight times: where both branches of the last block are left out, where
  // only one is, and where none is.
  const Variable one = zoo::randn({1, 8, 8, 3}, 3);
  const Variable x(ops::clone(ops::broadcast_to(one.value(), {8, 8, 8, 3})));
  const auto outputs = [&](bool training) {
    Rng rng(4);
    Context context;
    context.training = training;
    context.rng = &rng;
    const std::vector<double> y = net.forward(x, context).value().to_vector();
    std::set<double> kinds;
    for (size_t i = 0; i < y.size(); i += 3) kinds.insert(std::round(1e3 * y[i]));
    return kinds.size();
  };
  CHECK(outputs(false) == 1);
  CHECK(outputs(true) > 1);
  CHECK(outputs(true) <= 4);
}

TEST_CASE("vit: steps learn, weights go out and in, checkpointing gives the same gradients") {
  Init init, other;
  other.rng = Rng(5);
  VitOptions options = small_vit();
  options.dropout = options.attention_dropout = 0.1;
  Vit net(init, options), copy(other, options);
  for (const auto& p : net.parameters())
    if (p.name == "heads.head.weight") p.parameter->set_value(randn({5, 16}, 3).value());
  const Variable x = randn({4, 12, 12, 3}, 2);
  const Tensor target = ids({4}, 5, 1);
  const auto loss = [&](const Variable& y) { return cross_entropy(y, target); };
  check_trains(net, copy, x, {}, loss, 0.02);
}
