#include "models/self_supervised/self_supervised.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>
#include <numeric>

#include "autograd/checkpoint.h"
#include "autograd/contrastive_functions.h"
#include "autograd/engine.h"
#include "autograd/record.h"
#include "autograd/saved_totals.h"
#include "models/freeze.h"
#include "models/state.h"
#include "models/zoo/resnet.h"
#include "models/zoo/resnet_cifar.h"
#include "ops/dense/copy.h"

using namespace frugal;
using namespace frugal::models;

namespace {

std::shared_ptr<Module> tiny_trunk(Init& init) {
  CifarResNetOptions options;
  options.blocks = 1;
  options.width = 4;
  options.num_classes = 0;
  return std::make_shared<CifarResNet>(init, options);
}
constexpr int64_t kTrunkFeatures = 16;

SelfSupervisedOptions tiny(SelfSupervision method) {
  SelfSupervisedOptions options = published_options(method, kTrunkFeatures);
  options.projector = {12, 8};
  if (options.predictor > 0) options.predictor = 6;
  if (options.queue > 0) options.queue = 10;
  return options;
}
SelfSupervised network(SelfSupervision method, Device device = kCpu) {
  Init init{Rng(1), device};
  return {init, tiny_trunk, kTrunkFeatures, tiny(method)};
}

Tensor view(uint64_t seed, int64_t samples = 4) {
  return Tensor::randn({samples, 8, 8, 3}, {seed, 0});
}

double loss_of(SelfSupervised& net, const Tensor& first, const Tensor& second) {
  Context context;
  return net.loss(Variable(first), Variable(second), context).loss.value().item();
}

// cos of the rows, averaged.
double mean_cosine(const Tensor& a, const Tensor& b) {
  return -negative_cosine(Variable(a), b).value().item();
}

Tensor values(Module& module, const std::string& name) {
  for (const auto& p : module.parameters())
    if (p.name == name) return p.parameter->value();
  for (const auto& b : module.buffers())
    if (b.name == name) return *b.buffer;
  FAIL(name);
  return {};
}

constexpr SelfSupervision kAll[] = {SelfSupervision::simsiam, SelfSupervision::byol,
                                    SelfSupervision::moco_v2};

}  // namespace

TEST_CASE("the published networks have the papers' sizes") {
  const auto elements = [](SelfSupervision method) {
    Init init{Rng(0), kMeta};
    const auto trunk = [](Init& at) {
      ResNetOptions options = resnet_options("resnet50");
      options.num_classes = 0;
      return std::make_shared<ResNet>(at, options);
    };
    SelfSupervised net(init, trunk, 2048, published_options(method, 2048));
    int64_t trained = 0;
    for (const auto& p : net.parameters())
      if (p.parameter->requires_grad()) trained += p.parameter->value().numel();
    return trained;
  };
  constexpr int64_t kTrunk = 23'508'032;  // ResNet-50 without its last layer
  // Three layers of 2048 and a norm behind each, of which the last has no parameters.
  CHECK(elements(SelfSupervision::simsiam) ==
        kTrunk + 3 * 2048 * 2048 + 2 * 2 * 2048 + (2048 * 512 + 2 * 512 + 512 * 2048 + 2048));
  CHECK(elements(SelfSupervision::byol) == kTrunk + (2048 * 4096 + 4096 + 2 * 4096 + 4096 * 256) +
                                               (256 * 4096 + 4096 + 2 * 4096 + 4096 * 256));
  CHECK(elements(SelfSupervision::moco_v2) == kTrunk + (2048 * 2048 + 2048) + (2048 * 128 + 128));
}

TEST_CASE("the losses are those of the papers, of the projections that the network gives") {
  const Tensor a = view(1), b = view(2);
  const NoGrad no_grad;
  Context context;
  for (const SelfSupervision method : kAll) {
    SelfSupervised net = network(method), same = network(method);
    const auto z = [&](const Tensor& x) { return net.project(Variable(x), context); };
    const auto p = [&](const Tensor& x) { return net.predict(z(x), context).value(); };
    double wanted = 0;
    if (method == SelfSupervision::simsiam) {
      wanted = -(mean_cosine(p(a), z(b).value()) + mean_cosine(p(b), z(a).value())) / 2;
    } else if (method == SelfSupervision::byol) {
      wanted = 2 - 2 * mean_cosine(p(a), net.copy_projection(b, context)) + 2 -
               2 * mean_cosine(p(b), net.copy_projection(a, context));
    } else {
      const Tensor keys = unit_rows(net.copy_projection(b, context));
      wanted = info_nce(z(a), keys, values(net, "queue"), 0.2).loss.value().item();
    }
    CHECK(loss_of(same, a, b) == doctest::Approx(wanted).epsilon(1e-5));
  }
}

TEST_CASE("the copy starts as the network and runs without a graph") {
  for (const SelfSupervision method : {SelfSupervision::byol, SelfSupervision::moco_v2}) {
    SelfSupervised net = network(method);
    for (const auto& p : net.parameters()) {
      const bool of_copy = p.name.starts_with("target_");
      CHECK(p.parameter->requires_grad() != of_copy);
      if (of_copy)
        CHECK(p.parameter->value().to_vector() == values(net, p.name.substr(7)).to_vector());
    }
    Context context;
    backward(net.loss(Variable(view(1)), Variable(view(2)), context).loss);
    for (const auto& p : net.parameters())
      CHECK(p.parameter->has_grad() != p.name.starts_with("target_"));
  }
}

TEST_CASE("a branch without gradients keeps nothing") {
  // Bytes kept between forward and backward: of MoCo one view's, of BYOL and SimSiam two views'.
  const auto kept = [](SelfSupervision method, int views) {
    SelfSupervised net = network(method, kMeta);
    Context context;
    const auto on_meta = [] { return Variable(Tensor::empty({64, 32, 32, 3}, DType::f32, kMeta)); };
    const int64_t before = allocator(kMeta).report().of(Category::activation);
    const SelfSupervisedLoss result = net.loss(on_meta(), on_meta(), context);
    const int64_t all = allocator(kMeta).report().of(Category::activation) - before;
    // One view through trunk and projector alone.
    SelfSupervised single = network(SelfSupervision::simsiam, kMeta);
    const int64_t start = allocator(kMeta).report().of(Category::activation);
    const Variable features = single.forward(on_meta(), context);
    const int64_t one = allocator(kMeta).report().of(Category::activation) - start;
    CHECK(all > views * one);
    CHECK(all < views * one + one / 10);
  };
  kept(SelfSupervision::simsiam, 2);
  kept(SelfSupervision::byol, 2);
  kept(SelfSupervision::moco_v2, 1);
}

TEST_CASE(
    "what is fixed by design stays so: freezing and thawing other parts changes nothing of it") {
  for (const SelfSupervision method : kAll) {
    CAPTURE(static_cast<int>(method));
    SelfSupervised net = network(method), same = network(method);
    const auto trained = [&] {
      std::vector<std::string> names;
      for (const auto& p : net.parameters())
        if (p.parameter->requires_grad()) names.push_back(p.name);
      return names;
    };
    const std::vector<std::string> before = trained();
    REQUIRE(before.size() < net.parameters().size());
    CHECK_FALSE(thaw(net));
    CHECK(trained() == before);
    // Norms that nobody froze use the statistics of the batch.
    freeze(net, {"projector.0."});
    CHECK(trained().size() < before.size());
    Context context;
    context.set_model(net);
    CHECK(context.keeps_frozen_statistics);
    const double loss = net.loss(Variable(view(2)), Variable(view(3)), context).loss.value().item();
    CHECK(loss == loss_of(same, view(2), view(3)));
    CHECK(thaw(net));
    CHECK(trained() == before);
    // A part alone knows what was frozen of it.
    freeze(net, {"trunk."});
    CHECK(thaw(net.trunk()));
    CHECK(trained() == before);
    CHECK_FALSE(thaw(net));
  }
}

TEST_CASE("follow() moves the copy by the share that the paper gives") {
  for (const SelfSupervision method : {SelfSupervision::byol, SelfSupervision::moco_v2}) {
    SelfSupervised net = network(method);
    for (const auto& p : net.parameters())
      if (p.parameter->requires_grad()) {
        ops::fill(p.parameter->value(), 2);
        p.parameter->value().bump_version();
      }
    const double m = net.options().momentum;
    for (const double progress : {0.0, 0.25, 1.0}) {
      const double before = values(net, "target_projector.0.weight").item();
      net.follow(progress);
      const double tau = method == SelfSupervision::moco_v2
                             ? m
                             : 1 - (1 - m) * (std::cos(std::numbers::pi * progress) + 1) / 2;
      CHECK(values(net, "target_projector.0.weight").item() ==
            doctest::Approx(tau * before + (1 - tau) * 2).epsilon(1e-5));
    }
  }
}

TEST_CASE("the queue takes the copy's keys in turn, around its end, and never while recomputing") {
  SelfSupervised net = network(SelfSupervision::moco_v2);
  const auto queue = [&] { return values(net, "queue").to_vector(); };
  const auto next = [&] { return values(net, "queue_next").item<int64_t>(); };
  CHECK(next() == 0);
  const std::vector<double> first = queue();
  for (int64_t row = 0; row < 10; ++row) {
    double square = 0;
    for (int64_t i = 0; i < 8; ++i) square += std::pow(first[static_cast<size_t>(8 * row + i)], 2);
    CHECK(square == doctest::Approx(1).epsilon(1e-5));
  }
  loss_of(net, view(1), view(2));
  CHECK(next() == 4);
  const std::vector<double> second = queue();
  CHECK(std::equal(first.begin() + 32, first.end(), second.begin() + 32));
  CHECK(!std::equal(first.begin(), first.begin() + 32, second.begin()));
  loss_of(net, view(3), view(4));
  loss_of(net, view(5), view(6));
  CHECK(next() == 2);
  const std::vector<double> third = queue();
  CHECK(!std::equal(second.begin(), second.begin() + 16, third.begin()));
  CHECK(std::equal(second.begin() + 16, second.begin() + 32, third.begin() + 16));
  {
    const RecomputeScope measuring;
    loss_of(net, view(1), view(2));
  }
  CHECK(next() == 2);
  CHECK(queue() == third);
  loss_of(net, view(7, 13), view(8, 13));  // more than the queue holds: the last ten
  CHECK(next() == 2);
  CHECK(queue() != third);
}

TEST_CASE("a pass that measures leaves no trace") {
  for (const SelfSupervision method : kAll) {
    SelfSupervised net = network(method);
    const auto state = [&] {
      std::vector<double> all;
      for (const auto& [name, tensor] : state_dict(net)) {
        const std::vector<double> some = tensor.to_vector();
        all.insert(all.end(), some.begin(), some.end());
      }
      return all;
    };
    const std::vector<double> before = state();
    const RecomputeScope measuring;
    loss_of(net, view(1), view(2));
    CHECK(state() == before);
  }
}

TEST_CASE("training on two views brings views of a picture together") {
  for (const SelfSupervision method : kAll) {
    CAPTURE(static_cast<int>(method));
    SelfSupervised net = network(method);
    const Tensor a = view(1, 8), b = view(2, 8);
    const RecomputeScope no_queue;  // else the queue fills with the same pictures
    double first = 0, last = 0;
    for (int step = 0; step < 12; ++step) {
      net.zero_grad();
      Context context;
      const SelfSupervisedLoss result = net.loss(Variable(a), Variable(b), context);
      last = result.loss.value().item();
      if (step == 0) first = last;
      backward(result.loss);
      for (const auto& p : net.parameters())
        if (p.parameter->has_grad()) {
          const Tensor &value = p.parameter->value(), &grad = p.parameter->grad();
          for (int64_t i = 0; i < value.numel(); ++i)
            value.mut<float>()[i] -= 0.05f * grad.data<float>()[i];
          value.bump_version();
        }
      net.follow(0);
    }
    CHECK(last < first - 0.05);
  }
}

TEST_CASE("a self-supervised network refuses what cannot be") {
  Init init;
  const auto make = [&](SelfSupervision method, auto change) {
    SelfSupervisedOptions options = tiny(method);
    change(options);
    SelfSupervised(init, tiny_trunk, kTrunkFeatures, options);
  };
  CHECK_THROWS_WITH_AS(make(SelfSupervision::byol, [](auto& o) { o.projector = {}; }),
                       doctest::Contains("expected a projector of at least one layer"), Error);
  CHECK_THROWS_WITH_AS(make(SelfSupervision::simsiam, [](auto& o) { o.predictor = 0; }),
                       doctest::Contains("expected a predictor of at least 1 units"), Error);
  CHECK_THROWS_WITH_AS(make(SelfSupervision::moco_v2, [](auto& o) { o.queue = 0; }),
                       doctest::Contains("expected a queue of at least 1"), Error);
  CHECK_THROWS_WITH_AS(make(SelfSupervision::byol, [](auto& o) { o.momentum = 2; }),
                       doctest::Contains("expected a momentum in [0, 1]"), Error);
  CHECK_THROWS_WITH_AS(self_supervision("simclr"), doctest::Contains("simsiam, byol, moco_v2"),
                       Error);
  SelfSupervised net = network(SelfSupervision::simsiam);
  CHECK_THROWS_WITH_AS(loss_of(net, view(1), view(2, 3)), doctest::Contains("two views"), Error);
}
