#include "distributed/reduce_in_backward.h"

#include "core/memory.h"
#include "tests/distributed/sharded_parameters.h"
#include "tests/distributed/small_network.h"
#include "train/training_step.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kRows = 24;
constexpr double kRate = 0.05;

// A channel for the sums. There are few channels, so all cases have one.
CommunicatorPtr channel_for_sums() {
  static const CommunicatorPtr channel = all_ranks()->channel();
  return channel;
}

void check_same_values(const SmallNetwork& a, const SmallNetwork& b) {
  const NamedVariables x = a.parameters(), y = b.parameters();
  for (size_t i = 0; i < x.size(); ++i) {
    CAPTURE(x[i].first);
    CHECK((bits_of(x[i].second.value()) == bits_of(y[i].second.value())));
  }
}

}  // namespace

TEST_CASE("updates in the backward pass give the bits of updates after it") {
  const auto [begin, end] = samples_of(kRows, ranks());
  for (const Kind& kind : kinds())
    for (const int64_t window : {int64_t{0}, int64_t{1500}, int64_t{1} << 30})
      for (const bool sharded : {false, true})
        for (const bool apart : {false, true}) {
          if (apart && window == 1500) continue;
          CAPTURE(kind.name);
          CAPTURE(window);
          const SmallNetwork after(DType::f32), during(DType::f32);
          const std::vector<ParameterGroup> groups{{during.parameters(), 1, 0.01}};
          const std::unique_ptr<Optimizer> one = kind.make({{after.parameters(), 1, 0.01}});
          const std::unique_ptr<Optimizer> many =
              sharded ? std::make_unique<ShardedOptimizer>(all_ranks(), groups, kind.make)
                      : kind.make(groups);
          GradientBuckets buckets(all_ranks(), after.parameters());
          for (int step = 0; step < 3; ++step) {
            backward(after.loss(begin, end), {}, buckets.leaf_done());
            buckets.finish();
            one->step(kRate);
            one->zero_grad();
            train::UpdateInBackward update(*many, kRate);
            ReduceInBackward reduce(apart ? channel_for_sums() : all_ranks(), during.parameters(),
                                    update.leaf_done(), window);
            backward(during.loss(begin, end), {}, reduce.leaf_done());
            reduce.finish();
            for (const auto& [name, parameter] : during.parameters()) CHECK(!parameter.has_grad());
            check_same_values(after, during);
          }
          check_same_state(*one, *many);
        }
}

TEST_CASE("gradients that are summed in the backward pass are handed on in order") {
  const auto [begin, end] = samples_of(kRows, ranks());
  const SmallNetwork whole, network;
  backward(whole.loss(0, kRows));
  std::vector<const GradAccumulator*> expected, got;
  backward(network.loss(begin, end), {}, [&](GradAccumulator& leaf) {
    expected.push_back(&leaf);
    leaf.set({});
  });
  const NamedVariables parameters = network.parameters();
  ReduceInBackward reduce(all_ranks(), parameters, [&](GradAccumulator& leaf) {
    got.push_back(&leaf);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].second.accumulator().get() != &leaf) continue;
      const Tensor sum = whole.parameters()[i].second.accumulator()->whole();
      CHECK(largest_difference(leaf.whole(), sum) < 1e-12);
    }
    leaf.set({});
  });
  for (int step = 0; step < 2; ++step) {
    got.clear();
    backward(network.loss(begin, end), {}, reduce.leaf_done());
    reduce.finish();
    CHECK((got == expected));
    if (ranks().size() == 1) continue;
    CHECK(reduce.last().buckets == 4);
    CHECK(reduce.last().begun_in_backward == 4);
    const int64_t bytes = (50 * 11 + 37 * 11 + 37 + 5 * 37) * 8;
    CHECK(reduce.last().bytes == bytes);
    CHECK(reduce.last().communication > 0);
    CHECK(reduce.last().hidden() >= 0);
    // About 2 (n - 1) / n of the bytes.
    CHECK(reduce.last().sent_bytes * ranks().size() >= 2 * (ranks().size() - 1) * bytes - 512);
    CHECK(reduce.last().sent_bytes * ranks().size() <= 2 * (ranks().size() - 1) * bytes + 512);
  }
}

TEST_CASE("a window of gradients lives while they are summed in the backward pass") {
  if (ranks().size() == 1) return;
  constexpr int kLayers = 16;
  constexpr int64_t kWidth = 96, kLayer = kWidth * kWidth * 4, kInWindow = 3 * kLayer;
  NamedVariables parameters;
  for (int i = 0; i < kLayers; ++i) {
    const Tensor value = Tensor::randn({kWidth, kWidth}, {static_cast<uint64_t>(i), 1});
    parameters.emplace_back("layer" + std::to_string(i), Variable::parameter(value));
  }
  const auto live = [] { return allocator(kCpu).report().of(Category::gradient); };
  const int64_t before = live();
  int64_t handed_on = 0;
  ReduceInBackward reduce(
      all_ranks(), parameters,
      [&](GradAccumulator& leaf) {
        ++handed_on;
        leaf.set({});
      },
      kInWindow);
  const LeafFn inner = reduce.leaf_done();
  Variable x(Tensor::ones({1, kWidth}));
  for (const auto& [name, parameter] : parameters) x = tanh(linear(x, parameter));
  int64_t leaves = 0;
  backward(sum(x), {}, [&](GradAccumulator& leaf) {
    inner(leaf);
    ++leaves;
    CHECK(live() - before <= kInWindow + 4096);
    CHECK(leaves - handed_on == std::min<int64_t>(leaves, 3));
  });
  reduce.finish();
  CHECK(handed_on == kLayers);
  CHECK(live() == before);
}

TEST_CASE("leaves of other variables are left out, and wrong arguments are refused") {
  const SmallNetwork network;
  ReduceInBackward reduce(
      all_ranks(), {{"first", network.first}}, [](GradAccumulator& leaf) { leaf.set({}); }, 0);
  backward(network.loss(0, 4), {}, reduce.leaf_done());
  reduce.finish();
  if (ranks().size() > 1) {
    CHECK(!network.first.has_grad());
    CHECK(network.second.has_grad());
    CHECK(reduce.last().buckets == 1);
  }
  CHECK_THROWS_WITH_AS(ReduceInBackward(all_ranks(), network.parameters(), {}),
                       doctest::Contains("expected a function to call for each leaf"), Error);
  const auto nothing = [](GradAccumulator&) {};
  CHECK_THROWS_WITH_AS(ReduceInBackward(all_ranks(), network.parameters(), nothing, -1),
                       doctest::Contains("expected a window of at least 0 bytes, got -1"), Error);
}

}  // namespace frugal::distributed
