#include "distributed/shared_statistics.h"

#include "autograd/checkpoint.h"
#include "autograd/saved_tensor.h"
#include "compress/policies/fixed_policy.h"
#include "core/dtype_switch.h"
#include "ops/dense/copy.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_network.h"

namespace frugal::distributed {
namespace {

constexpr int64_t kNormChannels = 6;

// Three batch norms, with relu and with a residual.
struct Norms {
  Variable mix, weight, bias, second_weight, second_bias;
  Tensor mean, variance, second_mean, second_variance;

  explicit Norms(DType dtype)
      : mix(make({kNormChannels, kNormChannels}, 1, dtype)),
        weight(make({kNormChannels}, 2, dtype)),
        bias(make({kNormChannels}, 3, dtype)),
        second_weight(make({kNormChannels}, 4, dtype)),
        second_bias(make({kNormChannels}, 5, dtype)),
        mean(Tensor::zeros({kNormChannels}, dtype)),
        variance(Tensor::ones({kNormChannels}, dtype)),
        second_mean(Tensor::zeros({kNormChannels}, dtype)),
        second_variance(Tensor::ones({kNormChannels}, dtype)) {}
  std::vector<Variable> parameters() const {
    return {mix, weight, bias, second_weight, second_bias};
  }
  Variable forward(const Variable& x) const {
    const BatchNormStats first{mean, variance}, second{second_mean, second_variance};
    const Variable h = batch_norm_relu(linear(x, mix), weight, bias, first);
    const Variable r = batch_norm_add_relu(linear(h, mix), h, second_weight, second_bias, second);
    return batch_norm(linear(r, mix), weight, bias, {});
  }

 private:
  static Variable make(const Shape& shape, uint64_t seed, DType dtype) {
    return Variable::parameter(Tensor::randn(shape, {seed, 0}, dtype));
  }
};

struct Result {
  Tensor y, dx;
  std::vector<Tensor> gradients, statistics;
};

enum class Mode { plain, checkpointed };

// Forward and backward of samples [begin, end) of a fixed batch.
Result run(int64_t batch, const Shape& rest, int64_t begin, int64_t end, DType dtype,
           SavePolicy* policy, Mode mode) {
  const Norms norms(dtype);
  std::vector<int64_t> extents{batch};
  for (int axis = 0; axis < rest.dim(); ++axis) extents.push_back(rest[axis]);
  const Shape shape{std::span<const int64_t>(extents)};
  // Far from 0, so that sums of squares alone would lose digits.
  Tensor all = Tensor::randn(shape, {9, 1}, dtype);
  with_real(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < all.numel(); ++i)
      all.mut<T>()[i] = all.mut<T>()[i] * 3 + static_cast<T>(i % kNormChannels + 40);
  });
  const Tensor dy = Tensor::randn(shape, {9, 2}, dtype);
  const Variable x = Variable::parameter(ops::clone(all.slice(0, begin, end)));
  const PolicyScope scope(policy);
  const Variable y =
      mode == Mode::plain
          ? norms.forward(x)
          : checkpoint([&](const Variables& in) { return norms.forward(in[0]); }, {x});
  backward(y, ops::clone(dy.slice(0, begin, end)));
  Result result{y.value(), x.grad(), {}, {}};
  for (const Variable& parameter : norms.parameters()) result.gradients.push_back(parameter.grad());
  result.statistics = {norms.mean, norms.variance, norms.second_mean, norms.second_variance};
  return result;
}

double relative_difference(const Tensor& a, const Tensor& b) {
  double squares = 0, all = 0;
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  for (size_t i = 0; i < x.size(); ++i) {
    squares += (x[i] - y[i]) * (x[i] - y[i]);
    all += y[i] * y[i];
  }
  return std::sqrt(squares / std::max(all, 1e-30));
}

struct Bounded {
  double forward, backward;
};

void check_like_whole(int64_t batch, const Shape& rest, DType dtype, SavePolicy* policy, Mode mode,
                      Bounded bound) {
  const Result whole = run(batch, rest, 0, batch, dtype, nullptr, Mode::plain);
  const auto [begin, end] = samples_of(batch, ranks());
  Result mine;
  {
    static const CommunicatorPtr channel = from_environment({60})->channel();
    const SharedStatistics shared(channel);
    mine = run(batch, rest, begin, end, dtype, policy, mode);
  }
  if (end > begin) {
    CHECK(relative_difference(mine.y, whole.y.slice(0, begin, end)) < bound.forward);
    CHECK(relative_difference(mine.dx, whole.dx.slice(0, begin, end)) < bound.backward);
  }
  for (size_t i = 0; i < whole.gradients.size(); ++i) {
    CAPTURE(i);
    ranks().all_reduce(mine.gradients[i]);
    CHECK(relative_difference(mine.gradients[i], whole.gradients[i]) < bound.backward);
  }
  for (size_t i = 0; i < whole.statistics.size(); ++i) {
    CAPTURE(i);
    CHECK(relative_difference(mine.statistics[i], whole.statistics[i]) < bound.forward);
    check_equal_everywhere(mine.statistics[i]);
  }
}

}  // namespace

TEST_CASE("batch norm over all ranks is that of the whole batch") {
  constexpr Bounded kExact{1e-12, 1e-12};
  // Images; rows, of which some ranks have one more; one row for each rank.
  check_like_whole(11, {3, 3, kNormChannels}, DType::f64, nullptr, Mode::plain, kExact);
  check_like_whole(23, {kNormChannels}, DType::f64, nullptr, Mode::plain, kExact);
  if (ranks().size() > 2)
    check_like_whole(ranks().size(), {kNormChannels}, DType::f64, nullptr, Mode::plain, kExact);
  check_like_whole(11, {3, 3, kNormChannels}, DType::f64, nullptr, Mode::checkpointed, kExact);
}

TEST_CASE("batch norm over all ranks in f32, under policies") {
  compress::FixedPolicy raw({.bits = 0, .min_elements = 0}), bits8({.bits = 8, .min_elements = 0}),
      stored8({.bits = 8, .recipes = false, .min_elements = 0});
  const Shape image{8, 8, kNormChannels};
  check_like_whole(9, image, DType::f32, nullptr, Mode::plain, {1e-4, 1e-3});
  check_like_whole(9, image, DType::f32, &raw, Mode::plain, {1e-4, 1e-3});
  check_like_whole(9, image, DType::f32, &bits8, Mode::plain, {1e-4, 0.1});
  check_like_whole(9, image, DType::f32, &stored8, Mode::plain, {1e-4, 0.1});
}

TEST_CASE("without the scope, each rank has statistics of its own") {
  if (ranks().size() == 1) return;
  const auto [begin, end] = samples_of(11, ranks());
  const Result whole = run(11, {kNormChannels}, 0, 11, DType::f64, nullptr, Mode::plain);
  const Result mine = run(11, {kNormChannels}, begin, end, DType::f64, nullptr, Mode::plain);
  CHECK(relative_difference(mine.statistics[0], whole.statistics[0]) > 1e-6);
}

TEST_CASE("all ranks together need two rows") {
  static const CommunicatorPtr channel = from_environment({60})->channel();
  const SharedStatistics shared(channel);
  const BatchNormStats none;
  const Variable x(Tensor::ones({ranks().rank() == 0 ? 1 : 0, kNormChannels}, DType::f64));
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, none),
                       doctest::Contains("expected at least 2 rows to train on, "), Error);
}

}  // namespace frugal::distributed
