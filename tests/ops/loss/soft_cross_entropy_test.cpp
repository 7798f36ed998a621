#include "ops/loss/soft_cross_entropy.h"

#include <doctest/doctest.h>

#include "ops/loss/cross_entropy.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

// Shares of each row that add up to 1; row `ignored` does not count.
Tensor shares(int64_t rows, int64_t classes, DType dtype, int64_t ignored = -1) {
  const Tensor t = Tensor::empty({rows, classes}, DType::f64);
  for (int64_t row = 0; row < rows; ++row) {
    double* at = t.mut<double>() + row * classes;
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c)
      sum += at[c] =
          (row + c) % 3 == 0
              ? 0
              : static_cast<double>(uniform({8, 0}, static_cast<uint64_t>(row * classes + c))) +
                    0.01;
    for (int64_t c = 0; c < classes; ++c) at[c] = row == ignored ? -100 : at[c] / sum;
  }
  return cast(t, dtype);
}

}  // namespace

TEST_CASE("soft_cross_entropy: loss and gradient follow the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double smoothing : {0.0, 0.1})
      for (const int64_t ignored : {-1, 2})
        for (const int64_t rows : {4, 200}) {
          const int64_t classes = 7;
          const Tensor x = normals({rows, classes}, 1, dtype, 3),
                       t = shares(rows, classes, dtype, ignored);
          double loss = 0;
          const double counted = static_cast<double>(ignored < 0 ? rows : rows - 1);
          std::vector<double> gradient;
          for (int64_t row = 0; row < rows; ++row) {
            double total = 0;
            for (int64_t c = 0; c < classes; ++c) total += std::exp(x.item(row * classes + c));
            for (int64_t c = 0; c < classes; ++c) {
              const double share =
                  (1 - smoothing) * t.item(row * classes + c) + smoothing / double(classes);
              const double p = std::exp(x.item(row * classes + c)) / total;
              if (row != ignored) loss -= share * std::log(p) / counted;
              gradient.push_back(row == ignored ? 0 : (p - share) / counted);
            }
          }
          const SoftCrossEntropyResult got = soft_cross_entropy(x, t, smoothing);
          const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-12;
          CHECK(got.loss.item() == doctest::Approx(loss).epsilon(tolerance));
          CHECK(error(got.gradient, gradient) < tolerance);
        }
}

TEST_CASE("soft_cross_entropy: a share of 1 is the class of cross_entropy, smoothed alike") {
  const Tensor x = normals({5, 4}, 2, DType::f64, 2);
  const Tensor classes = Tensor::from<int64_t>({0, 3, 1, 1, 2}, {5});
  Tensor one_hot = Tensor::zeros({5, 4}, DType::f64);
  for (int64_t row = 0; row < 5; ++row)
    one_hot.mut<double>()[row * 4 + classes.data<int64_t>()[row]] = 1;
  for (const double smoothing : {0.0, 0.25}) {
    CrossEntropyOptions options;
    options.label_smoothing = smoothing;
    const CrossEntropyResult expected = cross_entropy(x, classes, options);
    const SoftCrossEntropyResult got = soft_cross_entropy(x, one_hot, smoothing);
    CHECK(got.loss.item() == doctest::Approx(expected.loss.item()).epsilon(1e-12));
    const Tensor dx =
        cross_entropy_backward(Tensor::full({}, 1, DType::f64), x, classes, expected.lse, options);
    CHECK(error(got.gradient, dx.to_vector()) < 1e-12);
  }
}

TEST_CASE("soft_cross_entropy: an infinite logit without a share adds nothing, NaN shows") {
  const Tensor x = Tensor::from<float>({-INFINITY, 0, 0}, {1, 3});
  const Tensor t = Tensor::from<float>({0, 0.5, 0.5}, {1, 3});
  CHECK(soft_cross_entropy(x, t).loss.item() == doctest::Approx(std::log(2.0)));
  CHECK(std::isnan(soft_cross_entropy(Tensor::from<float>({NAN, 0, 0}, {1, 3}), t).loss.item()));
  const SoftCrossEntropyResult none = soft_cross_entropy(x, Tensor::full({1, 3}, -100));
  CHECK(std::isnan(none.loss.item()));
  CHECK(none.gradient.to_vector() == std::vector<double>(3));
}

TEST_CASE("soft_cross_entropy: the same bits for every thread count and layout") {
  const Tensor x = normals({333, 37}, 2), t = shares(333, 37, DType::f32, 5);
  const SoftCrossEntropyResult expected = soft_cross_entropy(x, t, 0.1);
  for (const int threads : {1, 2, 3}) {
    const ThreadsScope scope(threads);
    const SoftCrossEntropyResult got = soft_cross_entropy(with_gaps(x), with_gaps(t), 0.1);
    CHECK(same_bits(got.loss, expected.loss));
    CHECK(same_bits(got.gradient, expected.gradient));
  }
}

}  // namespace frugal::ops
