#include "optim/convergence.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "optim/variance_guard.h"

using namespace frugal;
using namespace frugal::optim;

namespace {

Tensor normal_vector(int64_t n, RngKey key, double deviation = 1) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(deviation * static_cast<double>(normal(key, static_cast<uint64_t>(i))));
  return Tensor::from(values, {n});
}

GradientSketch sketch(const std::vector<double>& values) {
  GradientSketch s;
  const auto n = static_cast<int64_t>(values.size());
  s.add(Tensor::from(values, {n}), 0);
  return s;
}

// The loss beta |w|^2 / 2 of a batch, seen through samples whose gradients vary by sigma^2 and
// roundings that add `added` to the variance of the whole batch's gradient.
struct Quadratic {
  static constexpr int64_t kSize = 1000;
  double beta = 3, sigma2 = 2, added = 0.4, share = 0.25, bias2 = 0;
  std::vector<double> w = std::vector<double>(kSize, 0.05);
  uint64_t draws = 0;

  std::vector<double> noise(double variance) {
    std::vector<double> all;
    const double deviation = std::sqrt(variance / kSize);
    for (uint64_t i = 0; i < kSize; ++i)
      all.push_back(deviation * static_cast<double>(normal({10, draws}, i)));
    ++draws;
    return all;
  }
  std::vector<double> gradient(const std::vector<double>& samples) {
    std::vector<double> all = noise(added / share);
    const double bias = std::sqrt(bias2 / kSize);
    for (size_t i = 0; i < all.size(); ++i) all[i] += beta * w[i] + samples[i] + bias;
    return all;
  }
  std::vector<double> exact(const std::vector<double>& samples) const {
    std::vector<double> all = samples;
    for (size_t i = 0; i < all.size(); ++i) all[i] += beta * w[i];
    return all;
  }
  GradientMoments measure(double alpha) {
    const std::vector<double> one = noise(sigma2 / share), two = noise(sigma2 / share);
    GradientSamples samples;
    samples.first = sketch(gradient(one));
    samples.second = sketch(gradient(one));
    samples.fine = sketch(exact(one));
    samples.other = sketch(gradient(two));
    samples.weights_before = sketch(w);
    const std::vector<double> step = gradient(one);
    for (size_t i = 0; i < w.size(); ++i) w[i] -= alpha * step[i];
    samples.weights_after = sketch(w);
    samples.later = sketch(gradient(one));
    return moments_of(samples, share);
  }
};

}  // namespace

TEST_CASE("a sketch is exact below its size, linear, and unbiased above") {
  GradientSketch a, b;
  a.add(Tensor::from<double>({1, -2, 3}, {3}), 5);
  b.add(Tensor::from<double>({2, 5, 1}, {3}), 6);
  CHECK(a.squared_norm() == 14);
  CHECK(a.dot(b) == -2 * 2 + 3 * 5);
  CHECK((a - b).squared_norm() == 1 + 16 + 4 + 1);

  const int64_t n = 5 * GradientSketch::kBuckets + 77;
  const Tensor x = normal_vector(n, {1, 0}), y = normal_vector(n, {2, 0});
  double xx = 0, xy = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double vx = x.data<double>()[i], vy = y.data<double>()[i];
    xx += vx * vx;
    xy += vx * vy;
  }
  GradientSketch s, t, parts;
  s.add(x, 0);
  t.add(y, 0);
  parts.add(x.slice(0, 0, 20000), 0);
  parts.add(x.slice(0, 20000, n), 20000);
  CHECK(s.squared_norm() == doctest::Approx(xx).epsilon(0.05));
  CHECK(std::abs(s.dot(t) - xy) < 0.05 * xx);
  CHECK((s - parts).squared_norm() < 1e-18 * xx);
  // The mean over many pieces of other signs has none of one sketch's error.
  double ratio = 0;
  for (int64_t k = 0; k < 30; ++k) {
    GradientSketch each;
    each.add(x, k * GradientSketch::kBuckets * 8);
    ratio += each.squared_norm() / xx / 30;
  }
  CHECK(ratio == doctest::Approx(1).epsilon(0.008));
  CHECK_THROWS_WITH(a.add(Tensor::zeros({2}, DType::i32), 0),
                    doctest::Contains("expected a floating dtype, got i32"));
}

TEST_CASE("a running mean is unbiased from the first value on") {
  RunningMean mean(0.5);
  CHECK(mean.value() == 0);
  mean.add(4);
  CHECK(mean.value() == 4);
  mean.add(10);  // (0.25 * 4 + 0.5 * 10) / 0.75
  CHECK(mean.value() == doctest::Approx(8));
  CHECK(mean.count() == 2);
  mean.reset();
  CHECK(mean.count() == 0);
}

TEST_CASE("variances, smoothness and the gradient of a known quadratic are found") {
  for (const double added : {0.0, 0.4, 4.0}) {
    CAPTURE(added);
    Quadratic problem;
    problem.added = added;
    constexpr double alpha = 0.05;
    ConvergenceTracker tracker;
    const double square = 0.05 * 0.05 * Quadratic::kSize * 9;
    double first = 0;
    for (int i = 0; i < 24; ++i) {
      const GradientMoments moments = problem.measure(alpha);
      if (i == 0) first = moments.gradient_square;
      tracker.stepped(alpha, 5);
      tracker.measured(moments);
    }
    // One draw: its error is of the size of sigma^2 / sqrt(kSize).
    CHECK(std::abs(first - square) < 0.2 * (square + 8 + 4 * added));
    CHECK(tracker.minibatch_variance() == doctest::Approx(2).epsilon(0.1 + 0.05 * added));
    if (added > 0)
      CHECK(tracker.added_variance() == doctest::Approx(added).epsilon(0.1));
    else
      CHECK(tracker.added_variance() == 0);
    CHECK(tracker.smoothness() == doctest::Approx(3).epsilon(0.03 + 0.1 * added));
    CHECK(tracker.alpha() == doctest::Approx(alpha));
    const ConvergenceBound bound = tracker.bound();
    CHECK(bound.applies);
    CHECK(bound.uncompressed ==
          doctest::Approx(2 * 5 / (alpha * 24) + alpha * 3 * 2).epsilon(0.05));
    CHECK(bound.value - bound.uncompressed ==
          doctest::Approx(alpha * tracker.smoothness() * tracker.added_variance()));
    // The theorem holds of what it bounds.
    CHECK(tracker.mean_gradient_square() < bound.value);
  }
}

TEST_CASE("a squared bias is told apart from the variance, and counts in the share and the bound") {
  for (const double bias2 : {0.0, 0.5}) {
    CAPTURE(bias2);
    Quadratic problem;
    problem.bias2 = bias2;
    constexpr double alpha = 0.05;
    ConvergenceTracker tracker;
    CHECK_FALSE(tracker.knows_bias());
    for (int i = 0; i < 48; ++i) {
      const GradientMoments moments = problem.measure(alpha);
      tracker.stepped(alpha, 5);
      tracker.measured(moments);
    }
    CHECK(tracker.knows_bias());
    // An inner product of two roundings deviates by added / share / sqrt(kSize), and one with the
    // bias by sqrt(2 bias2 added / share / kSize). The average has the weight of 9 measurements.
    const double v = problem.added / problem.share,
                 deviation = std::sqrt((v * v + 2 * bias2 * v) / Quadratic::kSize / 9);
    CHECK(std::abs(tracker.squared_bias() - bias2) < 4 * deviation);
    CHECK(tracker.added_variance() == doctest::Approx(problem.added).epsilon(0.1));
    const double both = tracker.added_variance() + tracker.squared_bias();
    CHECK(tracker.added_share() == doctest::Approx(both / tracker.minibatch_variance()));
    CHECK(tracker.bias_share() ==
          doctest::Approx(tracker.squared_bias() / tracker.minibatch_variance()));
    const ConvergenceBound bound = tracker.bound();
    CHECK(bound.value - bound.uncompressed ==
          doctest::Approx(alpha * tracker.smoothness() * tracker.added_variance() +
                          std::max(tracker.squared_bias(), 0.0)));
    // The state has the bias; that of earlier versions has none.
    ConvergenceTracker same;
    std::vector<double> numbers = tracker.state();
    same.restore(numbers);
    CHECK(same.squared_bias() == tracker.squared_bias());
    CHECK(same.state() == numbers);
    numbers.resize(numbers.size() - RunningMean::kNumbers);
    same.restore(numbers);
    CHECK_FALSE(same.knows_bias());
    CHECK(same.added_variance() == tracker.added_variance());
    tracker.forget_added();
    CHECK_FALSE(tracker.knows_bias());
    CHECK(tracker.added_measurements() == 0);
  }
}

TEST_CASE("ActNN's theorem 2, computed by hand") {
  const ConvergenceBound bound = convergence_bound(2, 0.1, 50, 4, 3, 0.5);
  CHECK(bound.uncompressed == doctest::Approx(0.8 + 1.2));
  CHECK(bound.value == doctest::Approx(0.8 + 1.4));
  CHECK(bound.applies);
  CHECK(convergence_bound(2, 0.1, 50, 4, 3, 0.5, 0.25).value == doctest::Approx(0.8 + 1.4 + 0.25));
  CHECK(!convergence_bound(2, 0.3, 50, 4, 3, 0.5).applies);
  CHECK(convergence_bound(2, 0, 0, 4, 3, 0.5).value == 0);
}

TEST_CASE("moments of gradients, computed by hand") {
  GradientSamples samples;
  samples.first = sketch({1, 2});
  samples.second = sketch({3, 2});
  samples.other = sketch({0, 1});
  samples.later = sketch({5, 0});
  samples.weights_before = sketch({1, 1});
  samples.weights_after = sketch({1, 4});
  CHECK_FALSE(moments_of(samples, 0.5).squared_bias);
  samples.fine = sketch({2, 4});
  const GradientMoments m = moments_of(samples, 0.5);
  CHECK(m.squared_bias.value() == doctest::Approx(-1 * 1 + -2 * -2));
  CHECK(m.added_variance == doctest::Approx(0.5 * 2));
  CHECK(m.minibatch_variance == doctest::Approx(0.5 * ((3 + 1) - 2) / 2));
  CHECK(m.gradient_square == doctest::Approx(2));
  CHECK(m.gradient_change == doctest::Approx(4 * 2 + 4 - 2));
  CHECK(m.weight_change == doctest::Approx(9));
  CHECK_THROWS_AS(moments_of(samples, 0), Error);
}

TEST_CASE("a tracker goes on from its state bit for bit") {
  Quadratic problem;
  ConvergenceTracker whole, parts;
  for (int i = 0; i < 6; ++i) {
    const GradientMoments moments = problem.measure(0.05);
    for (auto* tracker : {&whole, &parts}) {
      tracker->stepped(0.05, 3.0 / (i + 1));
      tracker->measured(moments);
    }
    ConvergenceTracker next;
    next.restore(parts.state());
    parts = next;
  }
  CHECK(parts.state() == whole.state());
  CHECK(parts.bound().value == whole.bound().value);
  CHECK_THROWS_WITH(parts.restore({1, 2}), doctest::Contains("expected 22 numbers, got 2"));
}

TEST_CASE("the guard finds the bits that known noise needs and rests there") {
  for (const double step : {1.0, 0.25})
    for (const double scale : {3e-3, 0.05, 0.7, 40.0, 1e9}) {  // added share at 1 bit
      for (const double start : {1.0, 4.0, 8.0}) {
        CAPTURE(scale);
        CAPTURE(start);
        CAPTURE(step);
        VarianceGuard guard({0.1, 1, 8, step});
        auto added = [&](double bits) { return scale * VarianceGuard::change(1, bits); };
        double bits = start;
        int64_t measurements = 0, changes = 0, last_change = 0;
        for (int64_t i = 1; i <= 400; ++i) {
          // Measured within 15 %, and averaged.
          const double error = 0.15 * static_cast<double>(normal({3, 0}, static_cast<uint64_t>(i)));
          ++measurements;
          const double seen =
              added(bits) * (1 + error / std::sqrt(static_cast<double>(measurements)));
          const double next = guard.next(bits, seen, measurements);
          if (next == bits) continue;
          bits = next;
          measurements = 0;
          ++changes;
          last_change = i;
        }
        CHECK(changes <= 6);
        CHECK(last_change < 60);
        CHECK((added(bits) <= 0.1 * 1.2 || bits == 8));
        // No more than needed: fewer bits would add too much, or there are no fewer.
        const double below = bits - 1;
        CHECK((below < 1 || added(below) > 0.25 * 0.1));
        CHECK(bits >= 1);
      }
    }
}

TEST_CASE("the guard waits for measurements, keeps to its range and remembers what was too low") {
  VarianceGuard guard({0.1, 2, 6, 1});
  CHECK(guard.next(4, 0.15, 1) == 4);
  CHECK(guard.next(4, 0.15, 2) == 5);
  CHECK(guard.next(4, 0.5, 1) == 6);  // far above: at once, and as far as needed
  CHECK(guard.next(2, 0.11, 2) == 3);
  CHECK(guard.next(6, 9, 5) == 6);
  VarianceGuard other({0.1, 2, 6, 1});
  CHECK(other.next(4, 0.003, 3) == 4);
  CHECK(other.next(4, 0.003, 4) == 3);
  CHECK(other.next(4, 0.03, 4) == 4);  // between
  CHECK(other.next(2, 0, 9) == 2);
  // A width that was too low is left alone for a while.
  CHECK(other.next(3, 0.2, 3) == 4);
  VarianceGuard resumed({0.1, 2, 6, 1});
  resumed.restore(other.state());
  int64_t waited = 0;
  while (other.next(4, 0.003, 9) == 4) ++waited;
  CHECK(waited == static_cast<int64_t>(VarianceGuard::kPatience) - 1);
  for (int64_t i = 0; i < waited; ++i) CHECK(resumed.next(4, 0.003, 9) == 4);
  CHECK(resumed.next(4, 0.003, 9) == 3);

  CHECK_THROWS_AS(VarianceGuard({0, 2, 6, 1}), Error);
  CHECK_THROWS_AS(VarianceGuard({0.1, 7, 6, 1}), Error);
  CHECK_THROWS_AS(VarianceGuard({0.1, 2, 17, 1}), Error);
  CHECK_THROWS_AS(VarianceGuard({0.1, 2, 6, 0}), Error);
  CHECK_THROWS_AS(guard.restore({1}), Error);
}
