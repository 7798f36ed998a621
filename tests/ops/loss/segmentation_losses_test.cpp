// Dice and focal loss, and the weights of classes, against their formulas.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/loss/class_weights.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/dice.h"
#include "ops/loss/focal.h"
#include "tests/ops/samples.h"

namespace frugal::ops {
namespace {

constexpr int64_t kVoid = 255;

// Classes 0 to classes - 2, so that one is absent, and kVoid in each tenth row.
Tensor targets_with_void(int64_t rows, int64_t classes) {
  const Tensor t = Tensor::empty({rows}, DType::i64);
  for (int64_t row = 0; row < rows; ++row)
    t.mut<int64_t>()[row] = row % 10 == 3 ? kVoid : 7 * row % (classes - 1);
  return t;
}

std::vector<double> probabilities(const Tensor& x) {
  const int64_t classes = x.size(1);
  std::vector<double> p;
  for (int64_t row = 0; row < x.size(0); ++row) {
    double total = 0;
    for (int64_t c = 0; c < classes; ++c) total += std::exp(x.item(row * classes + c));
    for (int64_t c = 0; c < classes; ++c) p.push_back(std::exp(x.item(row * classes + c)) / total);
  }
  return p;
}

}  // namespace

TEST_CASE("dice_loss: the loss follows the definition") {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const int64_t rows : {5, 1200}) {
      const int64_t classes = 4;
      const Tensor x = normals({rows, classes}, 1, dtype, 2), t = targets_with_void(rows, classes);
      const std::vector<double> p = probabilities(x);
      double dice = 0;
      for (int64_t c = 0; c < classes; ++c) {
        double both = 0, sum = 0;
        for (int64_t row = 0; row < rows; ++row) {
          if (t.data<int64_t>()[row] == kVoid) continue;
          const bool own = t.data<int64_t>()[row] == c;
          const double share = p[static_cast<size_t>(row * classes + c)];
          both += own ? share : 0;
          sum += share + (own ? 1 : 0);
        }
        dice += (2 * both + 0.5) / (sum + 0.5) / static_cast<double>(classes);
      }
      const DiceResult got = dice_loss(x, t, {0.5, kVoid});
      CHECK(got.loss.item() ==
            doctest::Approx(1 - dice).epsilon(dtype == DType::f32 ? 1e-5 : 1e-12));
    }
}

TEST_CASE("dice_loss: a perfect answer costs almost nothing, and nothing counts as nothing") {
  const Tensor x = Tensor::zeros({4, 2}), t = Tensor::zeros({4}, DType::i64);
  for (int64_t row = 0; row < 4; ++row) x.mut<float>()[2 * row] = 50;
  CHECK(dice_loss(x, t).loss.item() < 1e-6);
  const DiceResult none = dice_loss(x, Tensor::full({4}, kVoid, DType::i64), {1, kVoid});
  CHECK(none.loss.item() == 0);
  CHECK(none.gradient.to_vector() == std::vector<double>(8, 0.0));
}

TEST_CASE("focal_cross_entropy: loss and gradient follow the definition") {
  const int64_t rows = 130, classes = 5;
  const Tensor t = targets_with_void(rows, classes);
  for (const DType dtype : {DType::f32, DType::f64})
    for (const double gamma : {0.0, 0.5, 2.0}) {
      const Tensor x = normals({rows, classes}, 1, dtype, 2);
      const Tensor weights = cast(Tensor::from<double>({1, 2, 0, 0.5, 3}, {classes}), dtype);
      const std::vector<double> p = probabilities(x);
      double loss = 0, counted = 0;
      std::vector<double> gradient(static_cast<size_t>(rows * classes), 0.0);
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t right = t.data<int64_t>()[row];
        if (right == kVoid) continue;
        counted += 1;
        const double own = p[static_cast<size_t>(row * classes + right)], w = weights.item(right);
        loss -= w * std::pow(1 - own, gamma) * std::log(own);
        const double by_p =
            w * ((gamma == 0 ? 0 : gamma * std::pow(1 - own, gamma - 1) * std::log(own)) -
                 std::pow(1 - own, gamma) / own);
        for (int64_t c = 0; c < classes; ++c)
          gradient[static_cast<size_t>(row * classes + c)] =
              by_p * own * ((c == right ? 1 : 0) - p[static_cast<size_t>(row * classes + c)]);
      }
      for (double& g : gradient) g /= counted;
      const double tolerance = dtype == DType::f32 ? 1e-5 : 1e-12;
      const FocalResult got =
          focal_cross_entropy(x, t, {.gamma = gamma, .ignore_index = kVoid}, weights);
      CHECK(got.loss.item() == doctest::Approx(loss / counted).epsilon(tolerance));
      CHECK(error(got.gradient, gradient) < tolerance);
      const FocalResult all =
          focal_cross_entropy(x, t, {.gamma = gamma, .ignore_index = kVoid, .sum = true}, weights);
      CHECK(all.loss.item() == doctest::Approx(loss).epsilon(tolerance));
    }
}

TEST_CASE(
    "focal_cross_entropy: with gamma 0 it is cross_entropy; certain rows have finite numbers") {
  const Tensor x = normals({20, 3}, 1, DType::f64, 2), t = targets_with_void(20, 3);
  CHECK(focal_cross_entropy(x, t, {.gamma = 0, .ignore_index = kVoid}).loss.item() ==
        doctest::Approx(cross_entropy(x, t, {.ignore_index = kVoid}).loss.item()).epsilon(1e-12));
  const Tensor sure = Tensor::from<float>({200, 0, 0, 200}, {2, 2});
  const Tensor first = Tensor::zeros({2}, DType::i64);  // the first row is right, the second wrong
  const FocalResult got = focal_cross_entropy(sure, first, {.gamma = 0.5});
  CHECK(got.loss.item() == doctest::Approx(100));
  CHECK(got.gradient.item(0) == 0);
  CHECK(got.gradient.item(3) == doctest::Approx(0.5));
}

TEST_CASE("weights_of_rows: the weight of each row's class, 0 of rows that do not count") {
  const Tensor t = Tensor::from<int64_t>({2, 0, kVoid, 1, 7}, {5});
  CHECK(weights_of_rows(t, Tensor::from<float>({1, 2, 4}, {3}), kVoid).to_vector() ==
        std::vector<double>{4, 1, 0, 2, 0});
  CHECK_THROWS_WITH_AS(weights_of_rows(t, Tensor::zeros({3, 1}), kVoid),
                       doctest::Contains("expected class_weights with 1 axes"), Error);
  CHECK_THROWS_WITH_AS(weights_of_rows(Tensor::zeros({2}), Tensor::zeros({3}), kVoid),
                       doctest::Contains("expected target of dtype i64"), Error);
}

}  // namespace frugal::ops
