#include <doctest/doctest.h>

#include <cmath>

#include "autograd/engine.h"
#include "autograd/functions.h"
#include "models/activations.h"
#include "models/layers.h"
#include "models/transformer_layers.h"
#include "ops/dense/operators.h"
#include "tests/models/zoo.h"

using namespace frugal;

namespace {

using models::Sequential;
using zoo::parameter_names;

std::vector<double> values(const Variable& x) { return x.value().to_vector(); }

// What a layer makes of x.
template <class Layer>
Variable through(Layer layer, const Variable& x, bool training = true) {
  Rng rng(3);
  Context context{.training = training, .rng = &rng};
  return layer.forward(x, context);
}

// Counts bytes of saved tensors; keeps them all as they are.
class Counter : public SavePolicy {
 public:
  Decision decide(const SaveInfo& info, const Tensor&) override {
    ops.emplace_back(info.op);
    return {};
  }
  std::vector<std::string> ops;
};

}  // namespace

TEST_CASE("a sequential network names its parameters by position") {
  Sequential net{models::Conv2d(3, 4, 3), models::BatchNorm2d(4), models::Relu(),
                 models::MaxPool2d(2),    models::Flatten(),      models::Linear(36, 10)};
  CHECK(net.size() == 6);
  CHECK(parameter_names(net) ==
        std::vector<std::string>{"0.weight", "1.weight", "1.bias", "5.weight", "5.bias"});
  Context context;
  CHECK(net.forward(Variable(Tensor::rand({2, 8, 8, 3}, {1, 0})), context).shape() == Shape{2, 10});
  CHECK_THROWS_WITH_AS(net[6], doctest::Contains("[sequential] expected an index below 6"), Error);
}

TEST_CASE("a sequential network takes modules and pointers, and nests") {
  const auto shared = std::make_shared<models::Linear>(4, 4);
  Sequential net{Sequential{models::Linear(4, 4), models::Tanh()}, shared, shared};
  CHECK(parameter_names(net) == std::vector<std::string>{"0.0.weight", "0.0.bias", "1.weight",
                                                         "1.bias", "2.weight", "2.bias"});
  CHECK(&net[1] == shared.get());
  Context context;
  const Variable x(Tensor::randn({3, 4}, {1, 0}));
  const Variable once = shared->forward(net[0].forward(x, context), context);
  CHECK(values(net.forward(x, context)) == values(shared->forward(once, context)));
  Sequential moved = std::move(net);
  CHECK(parameter_names(moved).size() == 6);
  CHECK_THROWS_WITH_AS(Sequential{std::shared_ptr<models::Linear>()},
                       doctest::Contains("null pointer"), Error);
}

TEST_CASE("layers without an Init draw one after the other from the thread's own") {
  models::default_init() = {Rng(5)};
  models::Linear a(3, 2), b(3, 2);
  models::Init init{Rng(5)};
  models::Linear same(init, 3, 2);
  const auto weight = [](Module& m) { return m.parameters()[0].parameter->value().to_vector(); };
  CHECK(weight(a) == weight(same));
  CHECK(weight(a) != weight(b));
  models::default_init() = {Rng(6)};
  models::Linear other(3, 2);
  CHECK(weight(other) != weight(same));
  models::default_init() = {Rng(0), kMeta};
  models::LayerNorm norm(4);
  CHECK(norm.device() == kMeta);
  models::default_init() = {};
}

TEST_CASE("layers without parameters are their functions") {
  const Variable x(Tensor::of({{-2, -0.5, 0, 3}}));
  CHECK(values(through(models::Identity(), x)) == values(x));
  CHECK(values(through(models::Relu(), x)) == values(relu(x)));
  CHECK(values(through(models::LeakyRelu(0.2), x)) == values(leaky_relu(x, 0.2)));
  CHECK(values(through(models::Elu(), x))[0] == doctest::Approx(std::expm1(-2)));
  CHECK(values(through(models::Gelu(), x)) == values(gelu(x)));
  CHECK(values(through(models::Gelu(frugal::Gelu::tanh), x)) ==
        values(gelu(x, frugal::Gelu::tanh)));
  CHECK(values(through(models::Silu(), x)) == values(silu(x)));
  CHECK(values(through(models::Sigmoid(), x)) == values(sigmoid(x)));
  CHECK(values(through(models::Tanh(), x)) == values(tanh(x)));
  CHECK(values(through(models::Softmax(), x)) == values(softmax(x)));
  CHECK(values(through(models::LogSoftmax(0), x)) == values(log_softmax(x, 0)));
}

TEST_CASE("dropout drops while training, from the context's stream") {
  const Variable x(Tensor::ones({1000}));
  CHECK(values(through(models::Dropout(0.25), x)) == values(dropout(x, 0.25, Rng(3).next())));
  CHECK(values(through(models::Dropout(0.25), x, false)) == values(x));
  Context context;
  models::Dropout layer(0.5);
  CHECK_THROWS_WITH_AS(layer.forward(x, context), doctest::Contains("random stream"), Error);
  CHECK_THROWS_WITH_AS(models::Dropout(1), doctest::Contains("probability in [0, 1)"), Error);
}

TEST_CASE("pooling and flattening of images") {
  const Variable x(Tensor::arange(0, 32).view({1, 4, 4, 2}));
  Pool2dOptions three;
  three.kernel = {3, 3};
  three.stride = {1, 1};
  three.padding = {1, 1};
  CHECK(values(through(models::MaxPool2d(2), x)) == values(max_pool2d(x, {})));
  CHECK(values(through(models::MaxPool2d(3, 1, 1), x)) == values(max_pool2d(x, three)));
  CHECK(values(through(models::AvgPool2d(2), x)) == values(avg_pool2d(x, {})));
  CHECK(values(through(models::AvgPool2d(three), x)) == values(avg_pool2d(x, three)));
  CHECK(through(models::AdaptiveAvgPool2d(2, 1), x).shape() == Shape{1, 2, 1, 2});
  CHECK(values(through(models::GlobalAvgPool2d(), x)) == values(global_avg_pool2d(x)));

  // PyTorch flattens channels first.
  CHECK(values(through(models::Flatten(), Variable(Tensor::arange(0, 8).view({1, 2, 2, 2})))) ==
        std::vector<double>{0, 2, 4, 6, 1, 3, 5, 7});
  CHECK(through(models::Flatten(), Variable(Tensor::zeros({2, 3, 5}))).shape() == Shape{2, 15});
  CHECK(through(models::Flatten(), Variable(Tensor::zeros({0, 3, 5}))).shape() == Shape{0, 15});
}

TEST_CASE("a norm with a relu behind it runs as one function") {
  models::BatchNorm2d norm(3);
  const Variable x(Tensor::randn({2, 4, 4, 3}, {1, 0}), true);
  Context context;
  Counter counter;
  Variable fused;
  Sequential net{std::move(norm), models::Relu()};
  {
    const PolicyScope scope(&counter);
    fused = net.forward(x, context);
  }
  CHECK(counter.ops == std::vector<std::string>{"batch_norm_relu"});
  models::BatchNorm2d again(3);
  CHECK(values(fused) == values(relu(again.forward(x, context))));
}

TEST_CASE("a sequential network learns") {
  models::default_init() = {};
  Sequential net{models::Linear(2, 16), models::Gelu(), models::Linear(16, 1)};
  const Tensor x = Tensor::randn({64, 2}, {1, 0});
  const Tensor target = x.slice(1, 0, 1) * x.slice(1, 1, 2);
  Context context;
  double first = 0, last = 0;
  for (int step = 0; step < 200; ++step) {
    net.zero_grad();
    const Variable loss = mse_loss(net.forward(Variable(x), context), Variable(target));
    (step == 0 ? first : last) = loss.value().item();
    backward(loss);
    for (const auto& p : net.parameters())
      p.parameter->set_value(p.parameter->value() - 0.1 * p.parameter->grad());
  }
  CHECK(last < 0.5 * first);
}
