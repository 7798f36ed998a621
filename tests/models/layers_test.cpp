#include "models/layers.h"

#include <doctest/doctest.h>

#include <cmath>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/record.h"
#include "core/parallel.h"
#include "models/state.h"
#include "models/zoo/mlp.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/dense/copy.h"
#include "tests/models/zoo.h"

using namespace frugal;
using namespace frugal::models;

namespace {

using zoo::largest_difference;

Variable random(const Shape& shape, uint64_t seed, DType dtype = DType::f32) {
  Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = normal({seed, 9}, static_cast<uint64_t>(i));
  return Variable(ops::cast(x, dtype), true);
}

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

Moments moments_of(const Tensor& x) {
  Moments m;
  const auto n = static_cast<double>(x.numel());
  for (const double value : x.to_vector()) {
    m.mean += value / n;
    m.deviation += value * value / n;
    m.largest = std::max(m.largest, std::abs(value));
  }
  m.deviation = std::sqrt(m.deviation - m.mean * m.mean);
  return m;
}

}  // namespace

TEST_CASE("the fused norms agree with norm, add and relu, forward and backward") {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const double tolerance = dtype == DType::f64 ? 1e-12 : 2e-5;
    for (const bool residual : {false, true}) {
      CAPTURE(residual);
      Init init;
      BatchNorm2d fused(init, 5), plain(init, 5);
      to_dtype(fused, dtype);
      to_dtype(plain, dtype);
      Context context;
      const Variable x = random({4, 3, 3, 5}, 1, dtype), x2 = random({4, 3, 3, 5}, 1, dtype);
      const Variable r = random({4, 3, 3, 5}, 2, dtype), r2 = random({4, 3, 3, 5}, 2, dtype);
      const Tensor dy = random({4, 3, 3, 5}, 3, dtype).value();
      const Variable y =
          residual ? fused.forward_add_relu(x, r, context) : fused.forward_relu(x, context);
      Variable y2 = plain.forward(x2, context);
      y2 = relu(residual ? add(y2, r2) : y2);
      CHECK(largest_difference(y.value(), y2.value()) < tolerance);
      backward(y, dy);
      backward(y2, dy);
      CHECK(largest_difference(x.grad(), x2.grad()) < tolerance);
      if (residual) CHECK(largest_difference(r.grad(), r2.grad()) < tolerance);
      for (size_t i = 0; i < 2; ++i)
        CHECK(largest_difference(fused.parameters()[i].parameter->grad(),
                                 plain.parameters()[i].parameter->grad()) < 10 * tolerance);
      for (size_t i = 0; i < 3; ++i)
        CHECK(largest_difference(*fused.buffers()[i].buffer, *plain.buffers()[i].buffer) <
              tolerance);
    }
  }
}

TEST_CASE("the batch counter counts training forwards once") {
  Init init;
  BatchNorm2d norm(init, 2);
  const Tensor& counter = *norm.buffers()[2].buffer;
  CHECK(counter.shape() == Shape{});
  CHECK(counter.dtype() == DType::i64);
  Context train, eval;
  eval.training = false;
  const Variable x = random({4, 2}, 1);
  norm.forward(x, train);
  norm.forward(x, eval);
  CHECK(counter.item() == 1);
  const Variable y =
      checkpoint([&](const Variables& in) { return norm.forward(in[0], train); }, {x});
  backward(sum(y));
  CHECK(counter.item() == 2);
}

TEST_CASE("initial weights have the distribution their name says") {
  Init init;
  Conv2d fan_in(init, 32, 64, 3, {}, false, ConvInit::kaiming_fan_in);
  Conv2d fan_out(init, 32, 64, 3, {}, false, ConvInit::kaiming_fan_out);
  Conv2d standard(init, 32, 64, 3, {}, true);
  Linear dense(init, 200, 300);
  const auto moments = [](Module& module, size_t i = 0) {
    return moments_of(module.parameters()[i].parameter->value());
  };
  // 18432 draws: a deviation within 6 standard errors is within 3.2 %.
  CHECK(moments(fan_in).deviation == doctest::Approx(std::sqrt(2.0 / (9 * 32))).epsilon(0.032));
  CHECK(moments(fan_out).deviation == doctest::Approx(std::sqrt(2.0 / (9 * 64))).epsilon(0.032));
  const double bound = 1 / std::sqrt(9.0 * 32);
  CHECK(moments(standard).deviation == doctest::Approx(bound / std::sqrt(3.0)).epsilon(0.032));
  CHECK(moments(standard).largest <= bound);
  CHECK(moments(standard, 1).largest <= bound);
  CHECK(moments(dense).largest <= 1 / std::sqrt(200.0));
  CHECK(std::abs(moments(dense).mean) < 6 / std::sqrt(3 * 200.0 * 60000));
  CHECK_THROWS_WITH_AS(Conv2d(init, 3, 4, 3, {.groups = 2}), doctest::Contains("groups"), Error);
}

TEST_CASE("initial weights depend on the seed and not on the threads") {
  const auto weights = [](uint64_t seed, int threads) {
    const int before = num_threads();
    set_num_threads(threads);
    Init init;
    init.rng = Rng(seed);
    Linear layer(init, 300, 400);
    set_num_threads(before);
    return layer.parameters()[0].parameter->value().to_vector();
  };
  CHECK(weights(1, 1) == weights(1, 3));
  CHECK(weights(1, 1) != weights(2, 1));
}

TEST_CASE("to_dtype casts parameters and floating buffers") {
  Init init;
  CifarResNet net(init, cifar_resnet_options("resnet20"));
  Context context;
  context.training = false;
  const Tensor x = random({2, 8, 8, 3}, 4).value();
  NoGrad no_grad;
  const Tensor y = net.forward(Variable(x), context).value();
  to_dtype(net, DType::f64);
  for (const auto& p : net.parameters()) CHECK(p.parameter->dtype() == DType::f64);
  for (const auto& b : net.buffers())
    CHECK(b.buffer->dtype() == (b.name.ends_with("num_batches_tracked") ? DType::i64 : DType::f64));
  const Tensor reference = net.forward(Variable(ops::cast(x, DType::f64)), context).value();
  CHECK(reference.dtype() == DType::f64);
  CHECK(largest_difference(y, reference) < 1e-4);
}

TEST_CASE("half precision files load as the module's dtype") {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    Init init, other;
    other.rng = Rng(5);
    CifarResNet a(init, cifar_resnet_options("resnet20")),
        b(other, cifar_resnet_options("resnet20"));
    NamedTensors state = state_dict(a);
    for (auto& [name, tensor] : state)
      if (is_floating(tensor.dtype())) tensor = ops::cast(tensor, dtype);
    load_state_dict(b, state);
    const Tensor& from = a.parameters()[0].parameter->value();
    const Tensor& to = b.parameters()[0].parameter->value();
    CHECK(to.dtype() == DType::f32);
    const double largest = moments_of(from).largest;
    CHECK(largest_difference(from, to) <= largest / (dtype == DType::bf16 ? 256 : 2048));
    CHECK(to.storage()->category() == Category::parameter);
  }
}

TEST_CASE("integers are no weights, and weights no counters") {
  Init init;
  CifarResNet net(init, cifar_resnet_options("resnet20"));
  const NamedTensors good = state_dict(net);
  const auto with = [&](const std::string& wanted, DType dtype) {
    NamedTensors state = good;
    for (auto& [name, tensor] : state)
      if (name == wanted) tensor = ops::cast(tensor, dtype);
    return state;
  };
  const std::string counter = "bn1.num_batches_tracked";
  for (const DType dtype : {DType::i64, DType::i32, DType::u8, DType::bool_})
    CHECK_THROWS_WITH_AS(load_state_dict(net, with("conv1.weight", dtype), "FILE"),
                         doctest::Contains("FILE do not fit the model\n  wrong dtype (1):\n    "
                                           "conv1.weight: expected f32, f16, bf16 or f64"),
                         Error);
  for (const DType dtype : {DType::f32, DType::bool_})
    CHECK_THROWS_WITH_AS(load_state_dict(net, with(counter, dtype)),
                         doctest::Contains("bn1.num_batches_tracked: expected i64"), Error);
  CHECK_NOTHROW(load_state_dict(net, with(counter, DType::i32)));
  // Without values, as a file's header describes them.
  NamedTensors described;
  for (const auto& [name, tensor] : with("conv1.weight", DType::i32))
    described.emplace_back(name, Tensor::empty(tensor.shape(), tensor.dtype(), kMeta));
  CHECK_THROWS_WITH_AS(check_state_dict(net, described), doctest::Contains("conv1.weight"), Error);
}

TEST_CASE("a long list of mismatches is shortened") {
  Init init;
  init.device = kMeta;
  ResNet net(init, resnet_options("resnet50"));
  CHECK_THROWS_WITH_AS(load_state_dict(net, {}), doctest::Contains("missing (267):"), Error);
  CHECK_THROWS_WITH_AS(load_state_dict(net, {}), doctest::Contains("and 257 more"), Error);
}

TEST_CASE("an mlp flattens images in the order C, H, W") {
  Init init;
  MlpOptions options;
  options.in_features = 12;
  options.hidden = {};
  options.num_classes = 1;
  Mlp net(init, options);
  const Tensor weight = Tensor::zeros({1, 12});
  weight.mut<float>()[7] = 1;  // channel 1, row 1, column 1 of [3, 2, 2]
  load_state_dict(net, {{"fc1.weight", weight}, {"fc1.bias", Tensor::zeros({1})}});
  Context context;
  const Variable x = random({1, 2, 2, 3}, 8);
  const double expected = x.value().select(1, 1).select(1, 1).item(1);
  CHECK(net.forward(x, context).value().item() == doctest::Approx(expected));
}
