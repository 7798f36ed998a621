#include "ops/loss/cross_entropy.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "ops/dense/softmax.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

Tensor targets(int64_t n, int64_t classes) {
  std::vector<int64_t> values;
  for (int64_t row = 0; row < n; ++row)
    values.push_back(static_cast<int64_t>(
        uniform_int({9, 0}, static_cast<uint64_t>(row), static_cast<uint64_t>(classes))));
  return Tensor::from<int64_t>(values, {n});
}

double reference(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options) {
  const Tensor y = log_softmax(cast(logits, DType::f64), 1);
  const int64_t classes = logits.size(1);
  double total = 0, kept = 0;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    const auto at = static_cast<int64_t>(target.item(row));
    if (at == options.ignore_index) continue;
    double even = 0;
    for (int64_t c = 0; c < classes; ++c) even -= y.item(row * classes + c);
    total += -(1 - options.label_smoothing) * y.item(row * classes + at) +
             options.label_smoothing * even / static_cast<double>(classes);
    ++kept;
  }
  return total / kept;
}

}  // namespace

TEST_CASE("cross_entropy: loss, log-sum-exp and counts follow the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double smoothing : {0.0, 0.1, 1.0})
      for (const auto& [n, classes] :
           {std::pair<int64_t, int64_t>{1, 1}, {3, 10}, {64, 10}, {130, 7}, {200, 1000}}) {
        const auto& this_n = n;
        CAPTURE(this_n);
        CAPTURE(smoothing);
        const Tensor x = normals({n, classes}, 1, dtype, 3), t = targets(n, classes);
        const CrossEntropyOptions options{smoothing, -100};
        const CrossEntropyResult got = cross_entropy(x, t, options);
        const double tolerance = dtype == DType::f32 ? 2e-6 : 1e-13;
        CHECK(std::abs(got.loss.item() - reference(x, t, options)) < tolerance * 10);
        int64_t correct = 0;
        for (int64_t row = 0; row < n; ++row) {
          double total = 0, best = -kInf, at = 0;
          for (int64_t c = 0; c < classes; ++c) {
            const double value = x.item(row * classes + c);
            total += std::exp(value);
            if (value > best) at = static_cast<double>(c);
            best = std::max(best, value);
          }
          CHECK(got.lse.item(row) == doctest::Approx(std::log(total)).epsilon(1e-6));
          correct += at == t.item(row) ? 1 : 0;
        }
        CHECK(got.correct.item() == static_cast<double>(correct));
        CHECK(got.counted.item() == static_cast<double>(n));
        CHECK(count_correct(x, t) == correct);
      }
}

TEST_CASE("cross_entropy: the gradient is the smoothed difference of probabilities") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double smoothing : {0.0, 0.1}) {
      const int64_t n = 70, classes = 5;
      const Tensor x = normals({n, classes}, 2, dtype, 2), t = targets(n, classes);
      t.mut<int64_t>()[3] = 2;
      const CrossEntropyOptions options{smoothing, 2};
      const Tensor y = softmax(cast(x, DType::f64));
      double kept = 0;
      for (const double at : t.to_vector()) kept += at != 2;
      std::vector<double> expected;
      for (int64_t i = 0; i < n * classes; ++i) {
        const double at = t.item(i / classes);
        const double wanted = smoothing / static_cast<double>(classes) +
                              (static_cast<double>(i % classes) == at ? 1 - smoothing : 0);
        expected.push_back(at == 2 ? 0 : 3 * (y.item(i) - wanted) / kept);
      }
      const CrossEntropyResult forward = cross_entropy(x, t, options);
      const Tensor dx =
          cross_entropy_backward(Tensor::full({}, 3, dtype), x, t, forward.lse, options);
      CHECK(error(dx, expected) < (dtype == DType::f32 ? 1e-6 : 1e-14));
      CHECK(forward.counted.item() == kept);
      CHECK(std::abs(forward.loss.item() - reference(x, t, options)) < 1e-5);
      CHECK(same_bits(
          cross_entropy_backward(Tensor::full({}, 3, dtype), with_gaps(x), t, forward.lse, options),
          dx));
    }
}

TEST_CASE("cross_entropy: all ignored is NaN with a gradient of 0") {
  const Tensor x = normals({2, 3}, 3), t = Tensor::full({2}, -100, DType::i64);
  const CrossEntropyResult got = cross_entropy(x, t);
  CHECK(std::isnan(got.loss.item()));
  CHECK(got.counted.item() == 0);
  CHECK(cross_entropy_backward(Tensor::full({}, 1), x, t, got.lse).to_vector() ==
        std::vector<double>(6));
  CHECK(
      std::isnan(cross_entropy(Tensor::zeros({0, 3}), Tensor::zeros({0}, DType::i64)).loss.item()));
}

TEST_CASE("cross_entropy: huge logits do not overflow, -inf may be masked out, NaN shows") {
  const Tensor t = Tensor::from<int64_t>({0}, {1});
  CHECK(cross_entropy(Tensor::from<float>({1e30f, -1e30f}, {1, 2}), t).loss.item() == 0);
  CHECK(cross_entropy(Tensor::from<float>({-1e30f, 1e30f}, {1, 2}), t).loss.item() > 1e30);
  const Tensor masked = Tensor::from<float>({0, -INFINITY, 0}, {1, 3});
  const CrossEntropyResult got = cross_entropy(masked, t);
  CHECK(got.loss.item() == doctest::Approx(std::log(2.0)));
  CHECK(cross_entropy_backward(Tensor::full({}, 1), masked, t, got.lse).item(1) == 0);
  for (const std::vector<float>& row : {std::vector<float>{0, NAN, 1}, {NAN, 0, 1}, {0, 1, NAN}})
    CHECK(std::isnan(cross_entropy(Tensor::from<float>(row, {1, 3}), t).loss.item()));
}

TEST_CASE("cross_entropy: sequences are rows, and the gradient has their shape") {
  const Tensor x = normals({4, 6, 9}, 5), t = targets(24, 9);
  const Tensor flat = x.view({24, 9});
  const CrossEntropyResult got = cross_entropy(x, t.view({4, 6})), wanted = cross_entropy(flat, t);
  CHECK(same_bits(got.loss, wanted.loss));
  CHECK(same_bits(got.lse, wanted.lse));
  CHECK(count_correct(x, t.view({4, 6})) == count_correct(flat, t));
  const Tensor one = Tensor::full({}, 1);
  const Tensor dx = cross_entropy_backward(one, x, t.view({4, 6}), got.lse);
  CHECK(dx.shape() == x.shape());
  CHECK(dx.to_vector() == cross_entropy_backward(one, flat, t, got.lse).to_vector());
  CHECK_THROWS_WITH_AS(cross_entropy(x, t), doctest::Contains("target of shape [4, 6]"), Error);
}

TEST_CASE("cross_entropy: row weights, as means and as sums") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool sum : {false, true}) {
      const int64_t n = 150, classes = 7;
      const Tensor x = normals({n, classes}, 6, dtype, 2), t = targets(n, classes);
      CrossEntropyOptions options{0.1, 3, sum};
      Tensor w = normals({n}, 7, DType::f64);
      double loss = 0, total = 0, counted = 0;  // rows of weight 0 count
      std::vector<double> factors;
      for (int64_t row = 0; row < n; ++row) {
        w.mut<double>()[row] = row % 5 == 0 ? 0 : std::abs(w.item(row));
        const bool kept = t.item(row) != 3;
        const double one =
            kept ? reference(x.slice(0, row, row + 1), t.slice(0, row, row + 1), options) : 0;
        const double weight = kept ? w.item(row) : 0;
        loss += weight * one;
        total += weight;
        counted += kept ? 1 : 0;
        factors.push_back(weight);
      }
      const double divisor = sum ? 1 : total;
      const Tensor weights = cast(w, dtype);
      const CrossEntropyResult got = cross_entropy(x, t, options, weights);
      const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-12;
      CHECK(got.loss.item() == doctest::Approx(loss / divisor).epsilon(tolerance));
      CHECK(got.counted.item() == counted);
      // A row's gradient is its own, times its share.
      CrossEntropyOptions alone = options;
      alone.sum = true;
      const Tensor one = Tensor::full({}, 1, dtype);
      const Tensor plain = cross_entropy_backward(one, x, t, got.lse, alone);
      std::vector<double> expected = plain.to_vector();
      for (size_t i = 0; i < expected.size(); ++i)
        expected[i] *= factors[i / static_cast<size_t>(classes)] / divisor;
      CHECK(error(cross_entropy_backward(one, x, t, got.lse, options, weights), expected) <
            tolerance);
      if (sum)
        CHECK(cross_entropy(x, t, options).loss.item() ==
              doctest::Approx(cross_entropy(x, t, {0.1, 3}).loss.item() *
                              cross_entropy(x, t, options).counted.item()));
    }
}

TEST_CASE("cross_entropy: weights of classes, where smoothing takes each class's own, as PyTorch") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double smoothing : {0.0, 0.1, 1.0})
      for (const bool sum : {false, true}) {
        const int64_t n = 90, classes = 7;
        const Tensor x = normals({n, classes}, 6, dtype, 2), t = targets(n, classes);
        const CrossEntropyOptions options{smoothing, 3, sum};
        Tensor v = Tensor::empty({classes}, DType::f64);  // class 2 has a weight of 0
        for (int64_t c = 0; c < classes; ++c)
          v.mut<double>()[c] = 0.5 * static_cast<double>(c == 2 ? 0 : c + 1);
        const Tensor y = log_softmax(cast(x, DType::f64), 1);
        double loss = 0, divisor = 0, all = 0;
        for (int64_t c = 0; c < classes; ++c) all += v.item(c);
        std::vector<double> expected(static_cast<size_t>(n * classes));
        for (int64_t row = 0; row < n; ++row) {
          const auto at = static_cast<int64_t>(t.item(row));
          if (at == 3) continue;
          const double weight = v.item(at), share = smoothing / static_cast<double>(classes);
          divisor += weight;
          loss -= (1 - smoothing) * weight * y.item(row * classes + at);
          for (int64_t c = 0; c < classes; ++c) {
            loss -= share * v.item(c) * y.item(row * classes + c);
            expected[static_cast<size_t>(row * classes + c)] =
                ((1 - smoothing) * weight + share * all) * std::exp(y.item(row * classes + c)) -
                share * v.item(c) - (c == at ? (1 - smoothing) * weight : 0);
          }
        }
        if (!sum)
          for (double& each : expected) each /= divisor;
        const EntropyWeights weights({}, cast(v, dtype));
        const CrossEntropyResult got = cross_entropy(x, t, options, weights);
        const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-12;
        CHECK(got.loss.item() == doctest::Approx(loss / (sum ? 1 : divisor)).epsilon(tolerance));
        const Tensor one = Tensor::full({}, 1, dtype);
        CHECK(error(cross_entropy_backward(one, x, t, got.lse, options, weights), expected) <
              tolerance);
        const Tensor p = cross_entropy_probabilities(x, got.lse);
        CHECK(error(cross_entropy_backward(one, p, t, {}, options, weights), expected) < tolerance);
      }
  fails("weights of rows or of classes", [] {
    cross_entropy(Tensor::zeros({2, 3}), Tensor::zeros({2}, DType::i64), {},
                  {Tensor::zeros({2}), Tensor::zeros({3})});
  });
  fails("class_weights of shape [3]", [] {
    cross_entropy(Tensor::zeros({2, 3}), Tensor::zeros({2}, DType::i64), {},
                  {{}, Tensor::zeros({2})});
  });
}

TEST_CASE(
    "cross_entropy: a row of weight 0 adds nothing, whatever its loss; weights may all be 0") {
  const Tensor x = Tensor::from<float>({0, -INFINITY, 0, 0, NAN, 1}, {3, 2});
  const Tensor t = Tensor::from<int64_t>({1, 0, 0}, {3});
  const Tensor w = Tensor::from<float>({0, 2, 0}, {3}), none = Tensor::zeros({3});
  const CrossEntropyResult got = cross_entropy(x, t, {}, w);
  CHECK(got.loss.item() == doctest::Approx(std::log(2.0)));
  const Tensor one = Tensor::full({}, 1);
  const Tensor dx = cross_entropy_backward(one, x, t, got.lse, {}, w);
  CHECK(dx.to_vector() == std::vector<double>{0, 0, -0.5, 0.5, 0, 0});
  CHECK(std::isnan(cross_entropy(x, t, {}, none).loss.item()));
  CHECK(cross_entropy_backward(one, x, t, got.lse, {}, none).to_vector() == std::vector<double>(6));
  CHECK(cross_entropy(x, t, {0, -100, true}, none).loss.item() == 0);
}

TEST_CASE("cross_entropy: gradient and probabilities in the place of the logits, the same bits") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t classes : {3, 1024, 2500}) {
      const Tensor x = normals({5, classes}, 8, dtype), t = targets(5, classes);
      t.mut<int64_t>()[2] = -100;
      const CrossEntropyOptions options{0.1};
      const CrossEntropyResult forward = cross_entropy(x, t, options);
      const Tensor one = Tensor::full({}, 1, dtype);
      const Tensor apart = cross_entropy_backward(one, x, t, forward.lse, options);
      const uint64_t version = x.storage()->version();
      const Tensor within = cross_entropy_backward(one, x, t, forward.lse, options, {}, true);
      CHECK(within.storage()->id() == x.storage()->id());
      CHECK(x.storage()->version() == version + 1);
      CHECK(same_bits(within, apart));
      const Tensor y = normals({5, classes}, 8, dtype);
      const Tensor probabilities = cross_entropy_probabilities(y, forward.lse);
      const Tensor over = cross_entropy_probabilities(y, forward.lse, true);
      CHECK(over.storage()->id() == y.storage()->id());
      CHECK(same_bits(over, probabilities));
    }
  const Tensor x = with_gaps(normals({5, 4}, 8)), t = targets(5, 4);
  CHECK_THROWS_WITH_AS(
      cross_entropy_backward(Tensor::full({}, 1), x, t, Tensor::zeros({5}), {}, {}, true),
      doctest::Contains("[cross_entropy_backward] expected contiguous logits"), Error);
}

TEST_CASE("cross_entropy: a large vocabulary takes no second tensor of its size") {
  for (const Device device : {kCpu, kMeta}) {
    const Shape shape = device.type == DeviceType::meta ? Shape{4096, 30522} : Shape{64, 30522};
    const Tensor x = Tensor::empty(shape, DType::f32, device);
    if (device.type != DeviceType::meta) fill(x, 0.5);
    const Tensor t = Tensor::zeros({shape[0]}, DType::i64, device);
    const int64_t before = allocator(device).report().live_total;
    allocator(device).reset_peak();
    const CrossEntropyResult got = cross_entropy(x, t);
    const Tensor one = Tensor::full({}, 1, DType::f32, device);
    cross_entropy_backward(one, x, t, got.lse, {}, {}, true);
    CHECK(allocator(device).report().peak_total - before < 8 * shape[0] + 1024);
  }
}

TEST_CASE("cross_entropy: the same bits for every thread count") {
  const Tensor x = normals({777, 33}, 4), t = targets(777, 33);
  const CrossEntropyResult expected = cross_entropy(x, t);
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    const CrossEntropyResult got = cross_entropy(x, t);
    CHECK(same_bits(got.loss, expected.loss));
    CHECK(same_bits(got.correct, expected.correct));
  }
}

TEST_CASE("cross_entropy: meta gets shapes") {
  const Tensor x = Tensor::empty({8, 10}, DType::f32, kMeta);
  const Tensor t = Tensor::empty({8}, DType::i64, kMeta);
  const CrossEntropyResult got = cross_entropy(x, t);
  CHECK(got.lse.shape() == Shape{8});
  CHECK(cross_entropy_backward(got.loss, x, t, got.lse).shape() == Shape{8, 10});
  CHECK(count_correct(x, t) == 0);
}

TEST_CASE("cross_entropy: mistakes are named") {
  const Tensor x = Tensor::zeros({3, 4});
  CHECK_THROWS_WITH_AS(cross_entropy(x, Tensor::from<int64_t>({0, 3, 4}, {3})),
                       doctest::Contains("expected targets in [0, 4) or the ignored index -100, "
                                         "got 4 in row 2"),
                       Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, Tensor::from<int64_t>({0, -1, 2}, {3})),
                       doctest::Contains("got -1 in row 1"), Error);
  const Tensor t = Tensor::zeros({3}, DType::i64);
  CHECK_THROWS_WITH_AS(cross_entropy(x, Tensor::zeros({3}, DType::i32)),
                       doctest::Contains("[cross_entropy] expected target of dtype i64"), Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, Tensor::zeros({2}, DType::i64)),
                       doctest::Contains("[cross_entropy] expected target of shape [3]"), Error);
  CHECK_THROWS_WITH_AS(cross_entropy(Tensor::zeros({3}), t),
                       doctest::Contains("logits with at least 2 axes"), Error);
  CHECK_THROWS_WITH_AS(cross_entropy(Tensor::zeros({3, 0}), t),
                       doctest::Contains("at least one class"), Error);
  CHECK_THROWS_WITH_AS(cross_entropy(Tensor::zeros({3, 4}, DType::f16), t),
                       doctest::Contains("f32, f64 or bf16"), Error);
  for (const double smoothing : {-0.1, 1.1, kNan})
    CHECK_THROWS_WITH_AS(cross_entropy(x, t, {smoothing, -100}),
                         doctest::Contains("label_smoothing in [0, 1]"), Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, t, {}, Tensor::zeros({4})),
                       doctest::Contains("[cross_entropy] expected row_weights of shape [3]"),
                       Error);
  CHECK_THROWS_WITH_AS(cross_entropy(x, t, {}, Tensor::zeros({3}, DType::f64)),
                       doctest::Contains("expected tensors of dtype f32 on cpu"), Error);
  CHECK_THROWS_WITH_AS(cross_entropy_backward(Tensor::zeros({3}), x, t, Tensor::zeros({3})),
                       doctest::Contains("[cross_entropy_backward] expected dy of shape []"),
                       Error);
  CHECK_THROWS_WITH_AS(cross_entropy_backward(Tensor::zeros({}), x, t, Tensor::zeros({4})),
                       doctest::Contains("lse of shape [3]"), Error);
}

}  // namespace frugal::ops
