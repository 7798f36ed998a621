// Gradients of networks on GPUs, beside those of one process on the CPU.
#include "autograd/engine.h"
#include "autograd/functions.h"
#include "autograd/gradient.h"
#include "core/memory.h"
#include "distributed/gradient_buckets.h"
#include "distributed/reduce_in_backward.h"
#include "distributed/sharded_optimizer.h"
#include "optim/optimizers.h"
#include "tests/cuda_ranks/cuda_ranks.h"
#include "train/ranks/gradient_codec.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kBatch = 24, kIn = 11, kHidden = 37, kClasses = 5;

struct Network {
  Variable first, bias, second, unused;
  Device device;

  explicit Network(Device where)
      : first(make({kHidden, kIn}, 2, where)),
        bias(make({kHidden}, 3, where)),
        second(make({kClasses, kHidden}, 4, where)),
        unused(make({7}, 5, where)),
        device(where) {}
  NamedVariables parameters() const {
    return {{"first", first}, {"bias", bias}, {"second", second}, {"unused", unused}};
  }
  // The sum of the losses of samples [begin, end) of a fixed batch.
  Variable loss(int64_t begin, int64_t end) const {
    const Tensor x = Tensor::randn({kBatch, kIn}, {7, 0}).slice(0, begin, end);
    std::vector<int64_t> targets;
    for (int64_t i = begin; i < end; ++i) targets.push_back(i % kClasses);
    const Variable input = Variable::constant(to_device(ops::contiguous(x), device));
    const Variable h = relu(linear(input, first, bias));
    return cross_entropy(linear(h, second), to_device(Tensor::from(targets, {end - begin}), device),
                         {.sum = true});
  }

 private:
  static Variable make(const Shape& shape, uint64_t seed, Device where) {
    return Variable::parameter(to_device(Tensor::randn(shape, {seed, 0}), where));
  }
};

std::vector<Tensor> whole_gradients() {
  Network network(kCpu);
  backward(network.loss(0, kBatch));
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : network.parameters()) {
    const auto& leaf = parameter.accumulator();
    all.push_back(leaf->defined() ? ops::clone(leaf->whole()) : Tensor());
  }
  return all;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
  return most;
}

void check_gradients(const Network& network, double bound) {
  const std::vector<Tensor> expected = whole_gradients();
  const NamedVariables parameters = network.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    CAPTURE(parameters[i].first);
    REQUIRE(parameters[i].second.has_grad() == expected[i].defined());
    if (!expected[i].defined()) continue;
    const Tensor grad = on_host(parameters[i].second.accumulator()->whole());
    CHECK(largest_difference(grad, expected[i]) < bound);
    check_equal_everywhere(grad);
  }
}

void zero(const Network& network) {
  for (auto [name, parameter] : network.parameters()) parameter.zero_grad();
}

std::pair<int64_t, int64_t> my_samples() {
  const Bounds bounds = even_bounds(kBatch, ranks().size());
  const auto r = static_cast<size_t>(ranks().rank());
  return {bounds[r], bounds[r + 1]};
}

constexpr BucketOptions kTiny{.first_bytes = 8, .bytes = 8};  // a parameter each

}  // namespace

TEST_CASE("buckets on GPUs give the gradients of one process on the CPU") {
  if (!gpu::available()) return;
  const auto [begin, end] = my_samples();
  for (const BucketOptions& options : {BucketOptions{}, kTiny}) {
    const Network network(gpu());
    GradientBuckets buckets(from_environment({60}), network.parameters(), options);
    double communication = 0;
    for (int step = 0; step < 4; ++step) {
      zero(network);
      backward(network.loss(begin, end), {}, buckets.leaf_done());
      buckets.finish();
      check_gradients(network, 1e-4);
      communication += buckets.last().communication;
      CHECK(buckets.last().waiting >= 0);
      CHECK(buckets.last().hidden() >= 0);
    }
    if (ranks().size() == 1) continue;
    CHECK(buckets.last().bytes > 0);
    // Sums that a GPU ended after the step count in the next one, so 4 steps have 3 steps' sums.
    CHECK(communication > 0);
  }
}

TEST_CASE("the host does not wait for the GPU in a step of buckets") {
  if (!gpu::available() || !gpu::emulated() || ranks().size() == 1) return;
  const auto [begin, end] = my_samples();
  const Network network(gpu());
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny);
  const auto step = [&] {
    zero(network);
    const Variable loss = network.loss(begin, end);
    const int64_t before = emulator::waits();
    backward(loss, {}, buckets.leaf_done());
    buckets.finish();
    return emulator::waits() - before;
  };
  step();
  const int64_t waits = step();
  if (uses_nccl(ranks()))
    CHECK(waits == 0);
  else
    CHECK(waits > 0);
}

TEST_CASE("buckets on GPUs with owners give each rank its parts") {
  if (!gpu::available()) return;
  const auto [begin, end] = my_samples();
  const Network network(gpu());
  // The first half of each parameter belongs to the first rank, the rest to the last one.
  std::vector<Bounds> owners;
  for (const auto& [name, parameter] : network.parameters()) {
    const int64_t n = parameter.value().numel();
    Bounds bounds(static_cast<size_t>(ranks().size()) + 1, n / 2);
    bounds.front() = 0;
    bounds.back() = n;
    owners.push_back(bounds);
  }
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny, owners);
  const std::vector<Tensor> expected = whole_gradients();
  const auto rank = static_cast<size_t>(ranks().rank());
  for (int step = 0; step < 3 && ranks().size() > 1; ++step) {
    zero(network);
    backward(network.loss(begin, end), {}, buckets.leaf_done());
    buckets.finish();
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor part = buckets.take_part(i);
      const int64_t first = owners[i][rank], last = owners[i][rank + 1];
      REQUIRE(part.defined() == (expected[i].defined() && last > first));
      if (!part.defined()) continue;
      const Tensor whole = expected[i].view({expected[i].numel()});
      CHECK(largest_difference(on_host(part), whole.slice(0, first, last)) < 1e-4);
    }
  }
}

TEST_CASE("buckets on GPUs in codes differ from the true sum by residuals") {
  if (!gpu::available() || ranks().size() == 1) return;
  const auto [begin, end] = my_samples();
  const Network network(gpu());
  const auto codec =
      std::make_shared<train::GradientCodec>(train::GradientCodecOptions{.bits = 8, .seed = 3});
  GradientBuckets buckets(from_environment({60}), network.parameters(), kTiny, {}, codec);
  constexpr int kSteps = 8;
  std::vector<Tensor> sums;
  for (int step = 0; step < kSteps; ++step) {
    zero(network);
    backward(network.loss(begin, end), {}, buckets.leaf_done());
    buckets.finish();
    check_gradients(network, 2);  // a step of the codes is about 0.5
    const Tensor grad = on_host(network.first.accumulator()->whole());
    sums.push_back(ops::clone(grad));
  }
  // The mean over the steps comes close to the gradient, because what codes lose is added later.
  const std::vector<double> expected = whole_gradients()[0].to_vector();
  double most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    double mean = 0;
    for (const Tensor& sum : sums) mean += sum.to_vector()[i] / kSteps;
    most = std::max(most, std::abs(mean - expected[i]));
  }
  CHECK(most < 0.05);
}

TEST_CASE("sums in the backward pass on GPUs") {
  if (!gpu::available()) return;
  const auto [begin, end] = my_samples();
  const Network network(gpu());
  NamedVariables used = network.parameters();
  used.pop_back();
  const std::vector<Tensor> expected = whole_gradients();
  size_t told = 0;
  ReduceInBackward reduce(
      from_environment({60})->channel(), used,
      [&](GradAccumulator& leaf) {
        for (size_t i = 0; i < used.size(); ++i)
          if (used[i].second.accumulator().get() == &leaf) {
            CHECK(largest_difference(on_host(leaf.whole()), expected[i]) < 1e-4);
            ++told;
          }
      },
      0);
  backward(network.loss(begin, end), {}, reduce.leaf_done());
  if (ranks().size() > 1) reduce.finish();
  CHECK(told == used.size());
}

TEST_CASE("weights of rank 0 reach the other ranks' GPUs") {
  if (!gpu::available()) return;
  std::vector<Tensor> all;
  for (int i = 0; i < 5; ++i)
    all.push_back(to_device(
        Tensor::randn({100 + i}, {static_cast<uint64_t>(ranks().rank() * 10 + i), 0}), gpu()));
  for (const Tensor& x : all) ranks().broadcast(x, 0, "weights");
  for (int i = 0; i < 5; ++i)
    CHECK(bits_of(on_host(all[static_cast<size_t>(i)])) ==
          bits_of(Tensor::randn({100 + i}, {static_cast<uint64_t>(i), 0})));
}

}  // namespace frugal::distributed
