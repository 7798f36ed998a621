#include "ops/loss/binary_cross_entropy.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// U[0, 1), a third of them 0 and a third 1.
Tensor probability_targets(const Shape& shape, DType dtype) {
  const Tensor t = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < t.numel(); ++i)
    t.mut<double>()[i] = i % 3 == 2 ? static_cast<double>(uniform({4, 0}, static_cast<uint64_t>(i)))
                                    : static_cast<double>(i % 3);
  return cast(t, dtype);
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace

TEST_CASE("binary_cross_entropy: loss and gradient follow the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool weighted : {false, true})
      for (const bool sum : {false, true})
        for (const Shape& shape : {Shape{1}, Shape{7, 3}, Shape{40, 5, 13}}) {
          const Tensor x = normals(shape, 1, dtype, 3), t = probability_targets(shape, dtype);
          Tensor w;
          if (weighted) {
            w = Tensor::empty({shape[0]}, DType::f64);
            for (int64_t row = 0; row < shape[0]; ++row)
              w.mut<double>()[row] = static_cast<double>(row % 4) + (shape[0] == 1 ? 1 : 0);
            w = cast(w, dtype);
          }
          const int64_t width = shape.numel() / shape[0];
          double loss = 0, total = 0;
          std::vector<double> gradient;
          for (int64_t i = 0; i < shape.numel(); ++i) {
            const double weight = weighted ? w.item(i / width) : 1, p = sigmoid(x.item(i));
            loss -= weight * (t.item(i) * std::log(p) + (1 - t.item(i)) * std::log(1 - p));
            total += weight;
            gradient.push_back(weight * (p - t.item(i)));
          }
          const double divisor = sum ? 1 : total;
          for (double& g : gradient) g /= divisor;
          const BinaryCrossEntropyResult got = binary_cross_entropy(x, t, {sum}, w);
          const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-12;
          CHECK(got.loss.item() == doctest::Approx(loss / divisor).epsilon(tolerance));
          CHECK(error(got.gradient, gradient) < tolerance);
          const Tensor dy = Tensor::full({}, -2, dtype);
          for (double& g : gradient) g *= -2;
          CHECK(error(binary_cross_entropy_backward(dy, got.gradient), gradient) < tolerance);
        }
}

TEST_CASE("binary_cross_entropy: huge logits do not overflow, infinite ones may be right") {
  const Tensor x = Tensor::from<float>({1e30f, -1e30f, INFINITY, -INFINITY}, {4});
  const Tensor right = Tensor::from<float>({1, 0, 1, 0}, {4});
  const BinaryCrossEntropyResult good = binary_cross_entropy(x, right);
  CHECK(good.loss.item() == 0);
  CHECK(good.gradient.to_vector() == std::vector<double>(4));
  const Tensor wrong = Tensor::from<float>({0, 1, 1, 0}, {4});
  CHECK(binary_cross_entropy(x, wrong).loss.item() == doctest::Approx(5e29));
  CHECK(std::isinf(binary_cross_entropy(x, Tensor::full({4}, 0.5)).loss.item()));
  const Tensor small = Tensor::from<float>({-100}, {1});
  CHECK(binary_cross_entropy(small, Tensor::zeros({1})).loss.item() ==
        doctest::Approx(std::exp(-100.0)));
}

TEST_CASE("binary_cross_entropy: NaN shows, and rows of weight 0 add nothing") {
  const Tensor x = Tensor::from<float>({NAN, 0, 0, 0}, {2, 2});
  const Tensor t = Tensor::zeros({2, 2});
  CHECK(std::isnan(binary_cross_entropy(x, t).loss.item()));
  CHECK(std::isnan(binary_cross_entropy(x, t).gradient.item()));
  const Tensor w = Tensor::from<float>({0, 3}, {2});
  const BinaryCrossEntropyResult got = binary_cross_entropy(x, t, {}, w);
  CHECK(got.loss.item() == doctest::Approx(std::log(2.0)));
  CHECK(got.gradient.to_vector() == std::vector<double>{0, 0, 0.25, 0.25});
  const BinaryCrossEntropyResult none = binary_cross_entropy(x, t, {}, Tensor::zeros({2}));
  CHECK(std::isnan(none.loss.item()));
  CHECK(none.gradient.to_vector() == std::vector<double>(4));
  CHECK(std::isnan(binary_cross_entropy(Tensor::zeros({0, 3}), Tensor::zeros({0, 3})).loss.item()));
  CHECK(binary_cross_entropy(Tensor::zeros({0}), Tensor::zeros({0}), {true}).loss.item() == 0);
}

TEST_CASE("binary_cross_entropy: the same bits for every thread count and layout") {
  const Tensor x = normals({333, 37}, 2), t = probability_targets({333, 37}, DType::f32);
  const Tensor w = normals({333}, 3);
  const BinaryCrossEntropyResult expected = binary_cross_entropy(x, t, {}, w);
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    const BinaryCrossEntropyResult got =
        binary_cross_entropy(with_gaps(x), with_gaps(t), {}, with_gaps(w));
    CHECK(same_bits(got.loss, expected.loss));
    CHECK(same_bits(got.gradient, expected.gradient));
  }
}

TEST_CASE("binary_cross_entropy: meta gets shapes") {
  const Tensor x = Tensor::empty({8, 10}, DType::f32, kMeta);
  const BinaryCrossEntropyResult got = binary_cross_entropy(x, x);
  CHECK(got.loss.shape() == Shape{});
  CHECK(binary_cross_entropy_backward(got.loss, got.gradient).shape() == Shape{8, 10});
}

TEST_CASE("binary_cross_entropy: mistakes are named") {
  const Tensor x = Tensor::zeros({3, 4});
  const auto refused = [&](const Tensor& target, const Tensor& weights, const char* message) {
    CHECK_THROWS_WITH_AS(binary_cross_entropy(x, target, {}, weights), doctest::Contains(message),
                         Error);
  };
  refused(Tensor::zeros({4, 3}), {}, "[binary_cross_entropy] expected target of shape [3, 4]");
  refused(Tensor::zeros({3, 4}, DType::f64), {}, "one dtype and device");
  refused(Tensor::full({3, 4}, -0.5), {}, "targets in [0, 1], got -0.5 in element 0");
  refused(Tensor::full({3, 4}, NAN), {}, "targets in [0, 1], got nan");
  refused(x, Tensor::zeros({4}), "row_weights of shape [3]");
  refused(x, Tensor::zeros({3}, DType::f64), "expected tensors of dtype f32 on cpu");
  CHECK_THROWS_WITH_AS(
      binary_cross_entropy(Tensor::zeros({2}, DType::i64), Tensor::zeros({2}, DType::i64)),
      doctest::Contains("logits of dtype f32, f64 or bf16"), Error);
  CHECK_THROWS_WITH_AS(binary_cross_entropy_backward(Tensor::zeros({2}), x),
                       doctest::Contains("dy of shape []"), Error);
}

}  // namespace frugal::ops
