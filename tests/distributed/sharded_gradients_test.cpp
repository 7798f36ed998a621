#include <cmath>
#include <limits>

#include "autograd/functions.h"
#include "core/memory.h"
#include "distributed/gradient_buckets.h"
#include "ops/dense/copy.h"
#include "optim/clip.h"
#include "optim/optimizers.h"
#include "tests/distributed/sharded_parameters.h"
#include "tests/distributed/small_network.h"

namespace frugal::distributed {
namespace {

constexpr double kShardedRate = 0.01;

std::vector<Variable> handles(const NamedVariables& parameters) {
  std::vector<Variable> all;
  for (const auto& [name, parameter] : parameters) all.push_back(parameter);
  return all;
}

// Gradients of this rank. No rank has one of "scale" in step 0, and only the last rank has one of
// "long" and of "fc.weight" in step 1.
void set_own_gradients(const Parameters& parameters, int step) {
  parameters.set_gradients(step, ranks().rank());
  if (step != 1 || ranks().rank() == ranks().size() - 1) return;
  for (auto [name, parameter] : parameters.all())
    if (name == "long" || name == "fc.weight") parameter.zero_grad();
}

// One parameter in a bucket, some in one, and all in one.
const BucketOptions kManyBuckets[] = {{.first_bytes = 8, .bytes = 8, .window = 8},
                                      {.first_bytes = 3000, .bytes = 100000, .window = 1},
                                      {.first_bytes = 1 << 30, .bytes = 1 << 30}};

}  // namespace

TEST_CASE("optimizers that get their parts of the gradients give the bits of one that is whole") {
  for (const Kind& kind : kinds())
    for (const BucketOptions& options : kManyBuckets) {
      CAPTURE(kind.name);
      CAPTURE(options.bytes);
      const Parameters whole, sharded;
      const std::unique_ptr<Optimizer> one = kind.make(whole.groups());
      ShardedOptimizer many(all_ranks(), sharded.groups(), kind.make);
      GradientBuckets sums(all_ranks(), whole.all(), options);
      // The order of the parameters is another one than the optimizer's.
      NamedVariables reversed = sharded.all();
      std::reverse(reversed.begin(), reversed.end());
      GradientBuckets parts(all_ranks(), reversed, options, many.owners(reversed));
      for (int step = 0; step < 4; ++step) {
        CAPTURE(step);
        set_own_gradients(whole, step);
        sums.finish();
        one->step(kShardedRate);
        one->zero_grad();
        set_own_gradients(sharded, step);
        parts.finish();
        if (ranks().size() > 1)
          for (const auto& [name, parameter] : reversed) CHECK(!parameter.has_grad());
        many.take_gradients(parts);
        many.step(kShardedRate);
        many.zero_grad();
        check_same_bits(whole, sharded);
      }
      check_same_state(*one, many);
    }
}

TEST_CASE("all ranks know which parameters have a gradient on any rank") {
  const SmallNetwork network;
  const ShardedOptimizer optimizer(
      all_ranks(), {{network.parameters(), 1, {}}},
      [](const auto& groups) { return std::make_unique<optim::Adam>(groups); });
  GradientBuckets buckets(all_ranks(), network.parameters(), {.first_bytes = 8, .bytes = 8},
                          optimizer.owners(network.parameters()));
  const auto run = [&](bool use_unused) {
    for (auto [name, parameter] : network.parameters()) parameter.zero_grad();
    Variable loss = network.loss(0, 4);
    if (use_unused) loss = add(loss, sum(network.unused));
    backward(loss, {}, buckets.leaf_done());
    buckets.finish();
  };
  run(ranks().rank() == ranks().size() - 1);
  for (size_t i = 0; i < 5; ++i) CHECK(buckets.has_gradient(i));
  run(false);
  CHECK(buckets.has_gradient(0));
  CHECK(!buckets.has_gradient(4));
  CHECK(!buckets.take_part(4).defined());
}

TEST_CASE("parts of a backward pass add up to the gradients of one process") {
  if (ranks().size() == 1) return;
  constexpr int64_t kBatch = 24;
  const SmallNetwork whole;
  backward(whole.loss(0, kBatch));
  const SmallNetwork network;
  const ShardedOptimizer optimizer(
      all_ranks(), {{network.parameters(), 1, {}}},
      [](const auto& groups) { return std::make_unique<optim::Adam>(groups); });
  const std::vector<Bounds> owners = optimizer.owners(network.parameters());
  const auto [begin, end] = samples_of(kBatch, ranks());
  const auto rank = static_cast<size_t>(ranks().rank());
  for (const BucketOptions& options : kManyBuckets) {
    GradientBuckets buckets(all_ranks(), network.parameters(), options, owners);
    for (int step = 0; step < 3; ++step) {
      const int64_t middle = (begin + end) / 2;
      backward(network.loss(begin, middle));
      backward(network.loss(middle, end), {}, buckets.leaf_done());
      buckets.finish();
      CHECK(buckets.last().bytes >= (50 * 11 + 37 * 11 + 37 + 5 * 37 + 7) * 8);
      // Each element goes to its owner once, but for those that are this rank's own.
      CHECK(buckets.last().sent_bytes < buckets.last().bytes);
      CHECK(buckets.last().communication > 0);
      const NamedVariables parameters = whole.parameters();
      for (size_t i = 0; i < 4; ++i) {  // the fifth is not used
        CAPTURE(parameters[i].first);
        const Tensor expected = parameters[i].second.accumulator()->whole();
        const Tensor part = buckets.take_part(i);
        const int64_t from = owners[i][rank], to = owners[i][rank + 1];
        REQUIRE(part.defined() == (to > from));
        if (!part.defined()) continue;
        const Tensor there = ops::contiguous(expected).view({expected.numel()});
        CHECK(largest_difference(part, there.slice(0, from, to)) < 1e-12);
      }
    }
  }
}

TEST_CASE("a backward pass ends with the bytes of this rank's share of the gradients") {
  if (ranks().size() == 1) return;
  constexpr int kLayers = 24;
  constexpr int64_t kWidth = 96, kLayer = kWidth * kWidth * 4;
  NamedVariables parameters;
  for (int i = 0; i < kLayers; ++i) {
    const Tensor value = Tensor::randn({kWidth, kWidth}, {static_cast<uint64_t>(i), 1});
    parameters.emplace_back("layer" + std::to_string(i), Variable::parameter(value));
  }
  const ShardedOptimizer optimizer(all_ranks(), {{parameters, 1, {}}}, [](const auto& groups) {
    return std::make_unique<optim::Adam>(groups);
  });
  GradientBuckets buckets(all_ranks(), parameters,
                          {.first_bytes = kLayer, .bytes = kLayer, .window = kLayer},
                          optimizer.owners(parameters));
  const auto live = [] { return allocator(kCpu).report().of(Category::gradient); };
  const int64_t before = live();
  const int64_t share = kLayers * kLayer / ranks().size();
  const LeafFn inner = buckets.leaf_done();
  for (int step = 0; step < 3; ++step) {
    Variable x(Tensor::ones({1, kWidth}));
    for (const auto& [name, parameter] : parameters) x = tanh(linear(x, parameter));
    int64_t most = 0;
    backward(sum(x), {}, [&](GradAccumulator& leaf) {
      inner(leaf);
      most = std::max(most, live() - before);
    });
    // One bucket's sum is being made, and the next bucket is filled.
    CHECK(live() - before <= share + 2 * kLayer + 4096);
    CHECK(most <= share + 4 * kLayer);
    CHECK(most >= share / 2);
    buckets.finish();
    CHECK(live() - before <= share + 4096);
    CHECK(live() - before >= share - kLayer);
    for (size_t i = 0; i < parameters.size(); ++i) buckets.take_part(i);
    CHECK(live() == before);
  }
}

TEST_CASE("norms of parts, and clipping by them, are those of whole gradients") {
  for (const size_t kind : {size_t{2}, size_t{6}}) {  // ranges, and whole parameters
    const Parameters whole, sharded;
    ShardedOptimizer many(all_ranks(), sharded.groups(), kinds()[kind].make);
    GradientBuckets sums(all_ranks(), whole.all());
    GradientBuckets parts(all_ranks(), sharded.all(), {}, many.owners(sharded.all()));
    const std::vector<Variable> all = handles(whole.all());
    const auto begin = [&] {
      set_own_gradients(whole, 1);
      sums.finish();
      set_own_gradients(sharded, 1);
      parts.finish();
      many.take_gradients(parts);
    };
    begin();
    const double norm = optim::grad_norm(all);
    CHECK(many.gradient_norm() == doctest::Approx(norm).epsilon(1e-12));
    check_equal_everywhere(Tensor::from<double>({many.gradient_norm()}, {1}));
    const std::vector<double> each = many.gradient_norms();
    for (size_t i = 0; i < each.size(); ++i) {
      CAPTURE(whole.all()[i].first);
      CHECK(each[i] == doctest::Approx(optim::grad_norm({all[i]})).epsilon(1e-12));
    }
    // A bound that the norm is below changes nothing; a lower one scales.
    CHECK(many.clip_gradient_norm(norm * 2) == doctest::Approx(norm).epsilon(1e-12));
    CHECK(many.gradient_norm() == doctest::Approx(norm).epsilon(1e-12));
    optim::clip_grad_norm(all, norm / 3);
    many.clip_gradient_norm(norm / 3);
    CHECK(many.gradient_norm() == doctest::Approx(norm / 3).epsilon(1e-6));
    CHECK(many.gradient_norm() == doctest::Approx(optim::grad_norm(all)).epsilon(1e-9));
    optim::scale_grads(all, -2.5);
    many.scale_gradients(-2.5);
    CHECK(many.gradient_norm() == doctest::Approx(optim::grad_norm(all)).epsilon(1e-9));
    optim::clip_grad_value(all, 0.1);
    many.clip_gradient_value(0.1);
    CHECK(many.gradient_norm() == doctest::Approx(optim::grad_norm(all)).epsilon(1e-9));
    // What was scaled is what step() uses.
    const std::unique_ptr<Optimizer> one = kinds()[kind].make(whole.groups());
    one->step(kShardedRate);
    many.step(kShardedRate);
    const NamedVariables x = whole.all(), y = sharded.all();
    for (size_t i = 0; i < x.size(); ++i) {
      CAPTURE(x[i].first);
      CHECK(largest_difference(x[i].second.value(), y[i].second.value()) < 1e-4);
      check_equal_everywhere(y[i].second.value());
    }
    // Gradients that are dropped do not come back.
    begin();
    many.zero_grad();
    CHECK(many.gradient_norm() == 0);
    const std::string before = bits_of(y[0].second.value());
    many.step(kShardedRate);
    CHECK((bits_of(y[0].second.value()) == before));
  }
}

TEST_CASE("whole gradients have norms over the ranks' parts, too") {
  const Parameters parameters;
  ShardedOptimizer optimizer(all_ranks(), parameters.groups(), kinds()[2].make);
  parameters.set_gradients(1);
  const double norm = optim::grad_norm(handles(parameters.all()));
  CHECK(optimizer.gradient_norm() == doctest::Approx(norm).epsilon(1e-12));
  optimizer.scale_gradients(0.5);
  CHECK(optimizer.gradient_norm() == doctest::Approx(norm / 2).epsilon(1e-6));
}

TEST_CASE("a gradient that is not finite on one rank makes the norm so on all") {
  const Parameters parameters;
  ShardedOptimizer optimizer(all_ranks(), parameters.groups(), kinds()[2].make);
  GradientBuckets buckets(all_ranks(), parameters.all(), {}, optimizer.owners(parameters.all()));
  parameters.set_gradients(1, ranks().rank());
  if (ranks().rank() == ranks().size() - 1)
    parameters.decayed[1].second.accumulator()->whole().mut<float>()[20999] =
        std::numeric_limits<float>::infinity();
  buckets.finish();
  optimizer.take_gradients(buckets);
  CHECK(!std::isfinite(optimizer.gradient_norm()));
  CHECK(!std::isfinite(optimizer.clip_gradient_norm(1)));
}

TEST_CASE("wrong owners and parts are refused") {
  const Parameters parameters;
  ShardedOptimizer optimizer(all_ranks(), parameters.groups(), kinds()[2].make);
  std::vector<Bounds> owners = optimizer.owners(parameters.all());
  owners.pop_back();
  CHECK_THROWS_WITH_AS(GradientBuckets(all_ranks(), parameters.all(), {}, owners),
                       doctest::Contains("expected owners of 7 parameters, got those of 6"), Error);
  owners = optimizer.owners(parameters.all());
  owners[0].back() += 1;
  CHECK_THROWS_WITH_AS(GradientBuckets(all_ranks(), parameters.all(), {}, owners),
                       doctest::Contains("[gradient_buckets] expected"), Error);
  CHECK_THROWS_WITH_AS(optimizer.owners({{"other", parameters.all()[0].second}}),
                       doctest::Contains("expected a parameter of the optimizer, got 'other'"),
                       Error);
  CHECK_THROWS_WITH_AS(optimizer.set_part_gradient(0, Tensor::ones({100000})),
                       doctest::Contains("as this rank's part of the gradient of 'conv.weight'"),
                       Error);
}

}  // namespace frugal::distributed
