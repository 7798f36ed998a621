#include <cmath>
#include <limits>

#include "core/memory.h"
#include "distributed/gradient_buckets.h"
#include "ops/dense/copy.h"
#include "optim/clip.h"
#include "tests/distributed/sharded_parameters.h"
#include "tests/distributed/small_network.h"
#include "train/ranks/gradient_codec.h"

namespace frugal::distributed {
namespace {

std::shared_ptr<const WireCodec> codec(int bits) {
  return std::make_shared<train::GradientCodec>(
      train::GradientCodecOptions{.bits = bits, .seed = 7});
}

// Several parameters in most buckets, and several buckets.
constexpr BucketOptions kBuckets{.first_bytes = 3000, .bytes = 200000};

// The exact sums over all ranks, f64, of gradients as Parameters::set_gradients() gives them.
std::vector<Tensor> exact_sums(int step) {
  const Parameters parameters;
  parameters.set_gradients(step, ranks().rank());
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : parameters.all()) {
    const Tensor sum = parameter.has_grad() ? ops::clone(ops::cast(parameter.grad(), DType::f64))
                                            : Tensor::zeros(parameter.shape(), DType::f64);
    ranks().all_reduce(sum);
    all.push_back(sum);
  }
  return all;
}

// A step of the codec for values of at most so much.
double codec_step(double most, int bits) {
  return (2 * most + most / 128) / ((1 << bits) - 1) * 1.02;
}

// Gradients are between -1 and 1. The terms of the other ranks are rounded, and then the sum is.
double error_bound(int bits) {
  const double others = ranks().size() - 1, residual = 1.2;  // what residuals add to the range
  const double terms = others * codec_step(residual, bits);
  return terms + codec_step(ranks().size() * residual + terms, bits);
}

// Adds the values of a gradient to a sum in f64.
void sum_up(const Tensor& sum, const Tensor& term) {
  const std::vector<double> values = term.to_vector();
  for (size_t i = 0; i < values.size(); ++i) sum.mut<double>()[i] += values[i];
}

std::vector<Tensor> zeros_like(const NamedVariables& parameters) {
  std::vector<Tensor> all;
  for (const auto& [name, parameter] : parameters)
    all.push_back(Tensor::zeros(parameter.shape(), DType::f64));
  return all;
}

// Adds the residuals of all ranks to sums.
void add_residuals(const GradientBuckets& buckets, const std::vector<Tensor>& sums) {
  const NamedTensors state = buckets.state();
  for (size_t i = 0; i < sums.size(); ++i) {
    const Tensor residuals = find_tensor(state, "residual/" + buckets.parameters()[i].first);
    for (int64_t r = 0; r < ranks().size(); ++r) sum_up(sums[i], residuals[r]);
  }
}

double bytes_of_step(const BucketOptions& options, std::shared_ptr<const WireCodec> wire,
                     bool owned) {
  const Parameters parameters;
  const ShardedOptimizer optimizer(all_ranks(), parameters.groups(), kinds()[2].make);
  GradientBuckets buckets(all_ranks(), parameters.all(), options,
                          owned ? optimizer.owners(parameters.all()) : std::vector<Bounds>{},
                          std::move(wire));
  parameters.set_gradients(1, ranks().rank());
  buckets.finish();
  return static_cast<double>(buckets.last().sent_bytes);
}

}  // namespace

TEST_CASE("sums in codes are near the true ones, with the same bits on all ranks") {
  if (ranks().size() == 1) return;
  for (const int bits : {8, 4})
    for (const BucketOptions& options : {kBuckets, BucketOptions{8, 8}, BucketOptions{}}) {
      CAPTURE(bits);
      CAPTURE(options.bytes);
      const Parameters parameters;
      GradientBuckets buckets(all_ranks(), parameters.all(), options, {}, codec(bits));
      const NamedVariables all = parameters.all();
      for (int step = 0; step < 3; ++step) {
        parameters.set_gradients(step, ranks().rank());
        buckets.finish();
        const std::vector<Tensor> exact = exact_sums(step);
        double most = 0;
        for (size_t i = 0; i < all.size(); ++i) {
          CAPTURE(all[i].first);
          REQUIRE(all[i].second.has_grad() == (step > 0 || all[i].first != "scale"));
          if (!all[i].second.has_grad()) continue;
          const Tensor& grad = all[i].second.grad();
          check_equal_everywhere(ops::contiguous(grad));
          most = std::max(most, largest_difference(ops::cast(grad, DType::f64), exact[i]));
        }
        // In later steps, what the steps before did not send is there, too.
        CHECK(most <= error_bound(bits) * (step == 0 ? 1 : 2));
        CHECK(most > error_bound(bits) / 100);
      }
    }
}

TEST_CASE("codes of 8 bits take about a quarter of the bytes of f32") {
  if (ranks().size() == 1) return;
  const BucketOptions options{.first_bytes = 1 << 18, .bytes = 1 << 18};
  for (const bool owned : {false, true}) {
    const double whole = bytes_of_step(options, nullptr, owned);
    const double eight = bytes_of_step(options, codec(8), owned) / whole;
    const double four = bytes_of_step(options, codec(4), owned) / whole;
    CHECK(eight <= 0.27);
    CHECK(eight >= 0.25);
    CHECK(four <= 0.145);
    CHECK(four >= 0.125);
  }
}

TEST_CASE("what codes lose comes later: sums over many steps stay near the true ones") {
  if (ranks().size() == 1) return;
  constexpr int kSteps = 200, kBits = 4;
  for (const bool owned : {false, true}) {
    CAPTURE(owned);
    const SmallNetwork network(DType::f32, 300);
    const NamedVariables parameters = network.parameters();
    const ShardedOptimizer optimizer(all_ranks(), {{parameters, 1, {}}}, kinds()[2].make);
    const std::vector<Bounds> owners = optimizer.owners(parameters);
    GradientBuckets buckets(all_ranks(), parameters, kBuckets,
                            owned ? owners : std::vector<Bounds>{}, codec(kBits));
    const auto rank = static_cast<size_t>(ranks().rank());
    // Each rank has a constant gradient in each step, and "unused" has one in some of them.
    const std::vector<Tensor> applied = zeros_like(parameters), exact = zeros_like(parameters);
    for (int step = 0; step < kSteps; ++step)
      for (size_t i = 0; i < parameters.size(); ++i) {
        Variable parameter = parameters[i].second;
        if (parameters[i].first == "unused" && step % 3 == 2) {
          parameter.zero_grad();
        } else {
          parameter.set_grad(numbers(parameter.shape(), 10 * i + rank));
          sum_up(exact[i], parameter.grad());
        }
        if (i + 1 < parameters.size()) continue;
        buckets.finish();
        for (size_t k = 0; k < parameters.size(); ++k) {
          const bool there = parameters[k].first != "unused" || step % 3 != 2;
          REQUIRE(buckets.has_gradient(k) == there);
          if (!owned && there) sum_up(applied[k], parameters[k].second.grad());
          if (!owned) continue;
          const Tensor part = buckets.take_part(k);
          REQUIRE(part.defined() == (there && owners[k][rank + 1] > owners[k][rank]));
          if (part.defined())
            sum_up(applied[k]
                       .view({applied[k].numel()})
                       .slice(0, owners[k][rank], owners[k][rank + 1]),
                   part);
        }
      }
    for (size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(parameters[i].first);
      ranks().all_reduce(exact[i]);
      if (owned) ranks().all_reduce(applied[i]);
      // Some steps of the codec, however many steps there were. Without residuals the errors
      // would go on adding up.
      CHECK(largest_difference(applied[i], exact[i]) <= 2 * error_bound(kBits));
      CHECK(largest_difference(applied[i], exact[i]) > error_bound(kBits) / 100);
    }
    // What is missing is what the residuals hold.
    add_residuals(buckets, applied);
    for (size_t i = 0; i < parameters.size(); ++i) {
      CAPTURE(parameters[i].first);
      CHECK(largest_difference(applied[i], exact[i]) < 1e-3);
    }
  }
}

TEST_CASE("a gradient that is not finite on one rank is seen on all, and forgotten") {
  if (ranks().size() == 1) return;
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (int holder = 0; holder < ranks().size(); ++holder) {
      const Parameters parameters;
      const Variable weight = parameters.all()[1].second;
      GradientBuckets buckets(all_ranks(), parameters.all(), kBuckets, {}, codec(8));
      for (int step = 1; step < 4; ++step) {
        parameters.set_gradients(step, ranks().rank());
        if (step == 2 && ranks().rank() == holder) {
          const Tensor grad = weight.accumulator()->whole();
          grad.mut<float>()[0] = bad;
          grad.mut<float>()[20000] = bad;
        }
        buckets.finish();
        const Tensor sum = ops::contiguous(weight.grad());
        check_equal_everywhere(sum);
        CHECK(std::isfinite(sum.item(0)) == (step != 2));
        CHECK(std::isfinite(sum.item(20000)) == (step != 2));
        CHECK(std::isfinite(optim::grad_norm({weight})) == (step != 2));
        CHECK(std::isfinite(optim::grad_norm({parameters.all()[3].second})));
      }
    }
}

TEST_CASE("without codes, the state is the order of the parameters, and drops residuals") {
  if (ranks().size() == 1) return;
  const SmallNetwork network(DType::f32, 300);
  const NamedVariables parameters = network.parameters();
  const auto make = [&] {
    return std::make_unique<GradientBuckets>(all_ranks(), parameters, kBuckets,
                                             std::vector<Bounds>{});
  };
  const auto first = make(), second = make();
  CHECK(first->state().empty());
  backward(network.loss(0, 3), {}, first->leaf_done());
  first->finish();
  NamedTensors state = first->state();
  REQUIRE(state.size() == 2);
  state.emplace_back("residual/first", Tensor::zeros({ranks().size(), 300, 11}));
  second->load_state(state);
  const NamedTensors again = second->state();
  REQUIRE(again.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(again[i].first == state[i].first);
    CHECK((bits_of(again[i].second) == bits_of(state[i].second)));
  }
  // Parameters come in the order in which their gradients are ready: the first ones last.
  CHECK(find_tensor(again, state[1].first).item<int64_t>(0) != 0);
}

TEST_CASE("the state of residuals lets a run go on with the same bits") {
  if (ranks().size() == 1) return;
  for (const bool owned : {false, true}) {
    CAPTURE(owned);
    const SmallNetwork network(DType::f32, 300);
    const NamedVariables parameters = network.parameters();
    const ShardedOptimizer optimizer(all_ranks(), {{parameters, 1, {}}}, kinds()[2].make);
    const auto make = [&] {
      return std::make_unique<GradientBuckets>(
          all_ranks(), parameters, kBuckets,
          owned ? optimizer.owners(parameters) : std::vector<Bounds>{}, codec(4));
    };
    const auto step = [&](GradientBuckets& buckets, int64_t number) {
      for (auto [name, parameter] : parameters) parameter.zero_grad();
      const int64_t begin = 10 * number + 3 * ranks().rank();
      backward(network.loss(begin, begin + 3), {}, buckets.leaf_done());
      buckets.finish();
      std::string bits;
      for (size_t i = 0; i < parameters.size(); ++i) {
        const Tensor sum = owned                             ? buckets.take_part(i)
                           : parameters[i].second.has_grad() ? parameters[i].second.grad()
                                                             : Tensor();
        if (sum.defined()) bits += bits_of(ops::contiguous(sum));
      }
      return bits;
    };
    const auto first = make(), second = make(), third = make();
    CHECK(first->state().empty());
    for (int64_t i = 0; i < 3; ++i) step(*first, i);
    NamedTensors state = first->state();
    CHECK(state.size() == 2 + parameters.size());
    CHECK(find_tensor(state, "residual/first").shape() == Shape{ranks().size(), 300, 11});
    CHECK(find_tensor(state, "residual/first").storage()->category() == Category::optimizer);
    for (auto& [name, tensor] : state) tensor = ops::clone(tensor);
    second->load_state(state);
    const NamedTensors again = second->state();
    REQUIRE(again.size() == state.size());
    for (size_t i = 0; i < state.size(); ++i) {
      CHECK(again[i].first == state[i].first);
      CHECK((bits_of(again[i].second) == bits_of(state[i].second)));
    }
    for (int64_t i = 3; i < 6; ++i) CHECK((step(*first, i) == step(*second, i)));
    // Without its state a run has other bits, and an empty state is that of the begin.
    third->load_state(state);
    third->load_state({});
    const auto fourth = make();
    CHECK((step(*third, 3) == step(*fourth, 3)));
    second->load_state(state);
    CHECK((step(*second, 3) != step(*third, 3)));
  }
}

TEST_CASE("residuals of another number of ranks are shared out, and none is lost") {
  if (ranks().size() == 1) return;
  const Parameters parameters;
  GradientBuckets buckets(all_ranks(), parameters.all(), kBuckets, {}, codec(4));
  parameters.set_gradients(1, ranks().rank());
  buckets.finish();
  const NamedTensors state = buckets.state();
  // As it would be of two ranks more, and of one alone.
  for (const int64_t before : {ranks().size() + 2, 1}) {
    NamedTensors other;
    for (const auto& [name, tensor] : state) {
      if (!name.starts_with("residual/")) {
        other.emplace_back(name, tensor);
        continue;
      }
      Shape shape = tensor.shape();
      shape[0] = before;
      other.emplace_back(name, numbers(shape, 3));
    }
    buckets.load_state(other);
    const std::vector<Tensor> sums = zeros_like(parameters.all());
    std::vector<Tensor> expected = zeros_like(parameters.all());
    add_residuals(buckets, sums);
    for (size_t i = 0; i < sums.size(); ++i) {
      const Tensor saved = find_tensor(other, "residual/" + parameters.all()[i].first);
      for (int64_t r = 0; r < before; ++r) sum_up(expected[i], saved[r]);
      CHECK(largest_difference(sums[i], expected[i]) < 1e-5);
    }
  }
}

TEST_CASE("a wrong state of residuals is refused on all ranks, and nothing changes") {
  if (ranks().size() == 1) return;
  const Parameters parameters;
  GradientBuckets buckets(all_ranks(), parameters.all(), kBuckets, {}, codec(8));
  parameters.set_gradients(1, ranks().rank());
  buckets.finish();
  const NamedTensors state = buckets.state();
  const auto refused = [&](const NamedTensors& wrong, const char* message) {
    // Wrong on one rank alone.
    const bool mine = ranks().rank() == ranks().size() - 1;
    CHECK_THROWS_WITH_AS(buckets.load_state(mine ? wrong : state), doctest::Contains(message),
                         Error);
    const NamedTensors now = buckets.state();
    for (size_t i = 0; i < state.size(); ++i)
      CHECK((bits_of(now[i].second) == bits_of(state[i].second)));
  };
  NamedTensors wrong = state;
  wrong.pop_back();
  refused(wrong, "expected a state with 'residual/long'");
  wrong = state;
  wrong.emplace_back("residual/other", Tensor::ones({2, 3}));
  refused(wrong, "expected a state of 9 entries, got 10");
  wrong = state;
  wrong[2].second = Tensor::ones({ranks().size(), 3});
  refused(wrong, "[gradient_buckets] expected 'residual/conv.weight' to be [");
  wrong = state;
  wrong[1].second = Tensor::zeros({7}, DType::i64);
  refused(wrong, "expected 'buckets/order' to have each number below 7 once");
}

TEST_CASE("residuals are of category optimizer, and codes are gone after a step") {
  if (ranks().size() == 1) return;
  const Parameters parameters;
  const auto live = [](Category category) { return allocator(kCpu).report().of(category); };
  GradientBuckets buckets(all_ranks(), parameters.all(), kBuckets, {}, codec(8));
  int64_t bytes = 0;
  for (const auto& [name, parameter] : parameters.all()) bytes += parameter.value().nbytes();
  const int64_t optimizer = live(Category::optimizer), workspace = live(Category::workspace);
  for (int step = 1; step < 4; ++step) {
    parameters.set_gradients(step, ranks().rank());
    buckets.finish();
    CHECK(live(Category::optimizer) - optimizer >= bytes);
    CHECK(live(Category::optimizer) - optimizer <= bytes + 7 * 128);
    CHECK(live(Category::workspace) <= workspace);
  }
}

TEST_CASE("one rank and other dtypes than f32 have no codes") {
  const Parameters parameters;
  GradientBuckets one(alone(), parameters.all(), kBuckets, {}, codec(4));
  parameters.set_gradients(1);
  const std::string before = bits_of(parameters.all()[0].second.grad());
  one.finish();
  CHECK((bits_of(parameters.all()[0].second.grad()) == before));
  CHECK(one.state().empty());
  one.load_state({{"residual/conv.weight", Tensor::ones({4, 33, 3, 3, 8})}});

  const SmallNetwork plain, coded;  // f64
  GradientBuckets whole(all_ranks(), plain.parameters());
  GradientBuckets codes(all_ranks(), coded.parameters(), kBuckets, {}, codec(4));
  const auto [begin, end] = samples_of(24, ranks());
  for (int step = 0; step < 2; ++step) {
    for (const SmallNetwork* network : {&plain, &coded})
      for (auto [name, parameter] : network->parameters()) parameter.zero_grad();
    backward(plain.loss(begin, end), {}, whole.leaf_done());
    backward(coded.loss(begin, end), {}, codes.leaf_done());
    whole.finish();
    codes.finish();
    CHECK((bits_of(ops::contiguous(plain.second.grad())) ==
           bits_of(ops::contiguous(coded.second.grad()))));
    CHECK(!coded.unused.has_grad());
  }
}

}  // namespace frugal::distributed
