#include "distributed/gradient_buckets.h"

#include <cstdlib>

#include "core/memory.h"
#include "distributed/sharded_optimizer.h"
#include "ops/dense/copy.h"
#include "optim/optimizers.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_network.h"
#include "train/ranks/gradient_codec.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kBatch = 24;

// The gradients of one process that takes the whole batch.
std::vector<Tensor> whole_gradients() {
  SmallNetwork network;
  backward(network.loss(0, kBatch));
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : network.parameters()) {
    const auto& leaf = parameter.accumulator();
    all.push_back(leaf->defined() ? ops::clone(leaf->whole()) : Tensor());
  }
  return all;
}

void check_gradients(const SmallNetwork& network) {
  const std::vector<Tensor> expected = whole_gradients();
  const NamedVariables parameters = network.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    CAPTURE(parameters[i].first);
    REQUIRE(parameters[i].second.has_grad() == expected[i].defined());
    if (!expected[i].defined()) continue;
    const Tensor grad = parameters[i].second.accumulator()->whole();
    CHECK(largest_difference(grad, expected[i]) < 1e-12);
    check_equal_everywhere(ops::contiguous(grad));
  }
}

void zero(const SmallNetwork& network) {
  for (auto [name, parameter] : network.parameters()) parameter.zero_grad();
}

// Buckets of about one parameter each.
constexpr BucketOptions kTiny{.first_bytes = 8, .bytes = 8};

}  // namespace

TEST_CASE("buckets give the gradients of one process") {
  for (const BucketOptions& options : {BucketOptions{}, kTiny, BucketOptions{2000, 3000}}) {
    const SmallNetwork network;
    GradientBuckets buckets(from_environment({60}), network.parameters(), options);
    const auto [begin, end] = samples_of(kBatch, ranks());
    for (int step = 0; step < 3; ++step) {
      zero(network);
      backward(network.loss(begin, end), {}, buckets.leaf_done());
      buckets.finish();
      check_gradients(network);
    }
  }
}

TEST_CASE("gradients that were accumulated, and passes that tell of no leaf") {
  const SmallNetwork network;
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny);
  const auto [begin, end] = samples_of(kBatch, ranks());
  const int64_t middle = (begin + end) / 2;
  for (const bool told : {true, false, true}) {
    zero(network);
    backward(network.loss(begin, middle));
    backward(network.loss(middle, end), {}, told ? buckets.leaf_done() : LeafFn());
    buckets.finish();
    check_gradients(network);
    if (!told) CHECK(buckets.last().begun_in_backward == 0);
  }
}

TEST_CASE("sums begin before the backward pass ends") {
  if (ranks().size() == 1) return;
  const SmallNetwork network;
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny);
  const auto [begin, end] = samples_of(kBatch, ranks());
  for (int step = 0; step < 3; ++step) {
    zero(network);
    backward(network.loss(begin, end), {}, buckets.leaf_done());
    buckets.finish();
    CHECK(buckets.last().buckets == 5);
    // The unused parameter is the first of all at first, and nothing overtakes it. After that the
    // order is that of the backward pass, in which it does not come.
    CHECK(buckets.last().begun_in_backward == (step == 0 ? 0 : 4));
    CHECK(buckets.last().communication > 0);
    CHECK(buckets.last().hidden() >= 0);
    CHECK(buckets.last().bytes >= (50 * 11 + 37 * 11 + 37 + 5 * 37 + 7) * 8);
  }
}

TEST_CASE("a rank without a gradient counts as zeros") {
  const SmallNetwork network;
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny);
  const int last = ranks().size() - 1;
  for (int step = 0; step < 2; ++step) {
    zero(network);
    // Only the last rank has a batch, and uses what the others do not.
    if (ranks().rank() == last)
      backward(add(network.loss(0, kBatch), sum(network.unused)), {}, buckets.leaf_done());
    buckets.finish();
    const std::vector<Tensor> expected = whole_gradients();
    CHECK(largest_difference(network.table.accumulator()->whole(), expected[0]) < 1e-12);
    CHECK(largest_difference(network.second.grad(), expected[3]) < 1e-12);
    REQUIRE(network.unused.has_grad());
    CHECK(network.unused.grad().to_vector() == std::vector<double>(7, 1));
  }
}

TEST_CASE("a frozen parameter gets no gradient") {
  SmallNetwork network;
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny);
  const auto [begin, end] = samples_of(kBatch, ranks());
  network.first.set_requires_grad(false);
  backward(network.loss(begin, end), {}, buckets.leaf_done());
  buckets.finish();
  CHECK(!network.first.has_grad());
  CHECK(largest_difference(network.second.grad(), whole_gradients()[3]) < 1e-12);
  network.first.set_requires_grad(true);
  zero(network);
  backward(network.loss(begin, end), {}, buckets.leaf_done());
  buckets.finish();
  check_gradients(network);
}

TEST_CASE("gradients live in their buckets alone, in category gradient") {
  if (ranks().size() == 1) return;
  const SmallNetwork network(DType::f32, 4000);
  GradientBuckets buckets(from_environment({60}), network.parameters());
  const auto gradient_bytes = [] { return allocator(kCpu).report().of(Category::gradient); };
  const int64_t before = gradient_bytes();
  for (int step = 0; step < 2; ++step) {
    zero(network);
    CHECK(gradient_bytes() == before);
    backward(network.loss(0, 4), {}, buckets.leaf_done());
    buckets.finish();
    const int64_t elements = 50 * 11 + 4000 * 11 + 4000 + 5 * 4000 + 7;
    CHECK(gradient_bytes() - before >= 4 * elements);
    CHECK(gradient_bytes() - before <= 4 * (elements + 5 * 16) + 64);
  }
}

TEST_CASE("buckets on meta plan the memory of a step") {
  if (ranks().size() == 1) return;
  NamedVariables parameters;
  for (int i = 0; i < 8; ++i)
    parameters.emplace_back("p" + std::to_string(i),
                            Variable::parameter(Tensor::empty({100, 64}, DType::f32, kMeta)));
  const ShardedOptimizer optimizer(
      from_environment({60}), {{parameters, 1, {}}},
      [](const auto& groups) { return std::make_unique<optim::Sgd>(groups, optim::SgdOptions{}); });
  const auto codec = std::make_shared<train::GradientCodec>(train::GradientCodecOptions{});
  const auto live = [](Category category) { return allocator(kMeta).report().of(category); };
  const int64_t gradients = live(Category::gradient), residuals = live(Category::optimizer);
  const int64_t bytes = 8 * 100 * 64 * 4;
  for (const bool owned : {false, true})
    for (const bool coded : {false, true}) {
      GradientBuckets buckets(from_environment({60}), parameters, kTiny,
                              owned ? optimizer.owners(parameters) : std::vector<Bounds>{},
                              coded ? codec : nullptr);
      for (auto& [name, parameter] : parameters)
        parameter.set_grad(Tensor::empty({100, 64}, DType::f32, kMeta));
      buckets.finish();
      const int64_t expected = owned ? bytes / ranks().size() : bytes;
      CHECK(std::abs(live(Category::gradient) - gradients - expected) <= 8 * 64);
      CHECK(std::abs(live(Category::optimizer) - residuals - (coded ? bytes : 0)) <= 8 * 64);
      for (auto& [name, parameter] : parameters) parameter.zero_grad();
    }
  CHECK(live(Category::gradient) == gradients);
}

TEST_CASE("ranks with different parameters are named") {
  if (ranks().size() == 1) return;
  const SmallNetwork network;
  NamedVariables parameters = network.parameters();
  const bool odd = ranks().rank() == ranks().size() - 1;
  const std::string number = std::to_string(ranks().size() - 1);
  const auto check = [&](const std::string& message) {
    CHECK_THROWS_WITH_AS(GradientBuckets(from_environment({60}), parameters),
                         doctest::Contains(message.c_str()), Error);
  };
  if (odd) parameters[1].first = "other";
  check("Number 1 is first [37, 11] f64 on rank 0 and other [37, 11] f64 on rank " + number);
  parameters = network.parameters();
  if (odd) parameters.pop_back();
  check("got 5 on rank 0 and 4 on rank " + number +
        ". Number 4 is unused [7] f64 on rank 0 and missing");
  parameters = network.parameters();
  if (odd) parameters[4].second = Variable::parameter(Tensor::zeros({7}));
  check("Number 4 is unused [7] f64 on rank 0 and unused [7] f32 on rank " + number);
  CHECK_THROWS_WITH_AS(GradientBuckets(alone(), network.parameters(), {.first_bytes = 0}),
                       doctest::Contains("expected sizes above 0 bytes, got 0"), Error);
}

TEST_CASE("values are broadcast and compared") {
  const double mine = ranks().rank() + 1;
  const NamedTensors tensors{{"a", Tensor::full({3}, mine)},
                             {"b", Tensor::full({2, 2}, mine, DType::f64)}};
  if (ranks().size() > 1) {
    const std::string message = "but 'a' of rank 1 differs from that of rank 0";
    CHECK_THROWS_WITH_AS(check_same_values(ranks(), tensors), doctest::Contains(message.c_str()),
                         Error);
  }
  broadcast_values(ranks(), tensors);
  check_same_values(ranks(), tensors);
  CHECK(tensors[0].second.item(2) == 1);
  CHECK(tensors[1].second.item(3) == 1);
  // One bit.
  const NamedTensors nearly{{"c", Tensor::full({3}, ranks().rank() == 1 ? -0.0 : 0.0)}};
  if (ranks().size() > 1)
    CHECK_THROWS_WITH_AS(check_same_values(ranks(), nearly), doctest::Contains("'c' of rank 1"),
                         Error);
}

}  // namespace frugal::distributed
