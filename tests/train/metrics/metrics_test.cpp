#include "train/metrics/metrics.h"

#include <doctest/doctest.h>

#include <cmath>

#include "core/error.h"
#include "core/rng.h"
#include "ops/dense/copy.h"

using namespace frugal;
using namespace frugal::train;

namespace {

// counts [target][predicted]
Confusion confusion(const std::vector<std::vector<int>>& counts) {
  Confusion result(static_cast<int64_t>(counts.size()));
  for (size_t target = 0; target < counts.size(); ++target)
    for (size_t predicted = 0; predicted < counts.size(); ++predicted)
      for (int i = 0; i < counts[target][predicted]; ++i)
        result.add(static_cast<int64_t>(predicted), static_cast<int64_t>(target));
  return result;
}

// Pearson's correlation of the answers as 0 and 1.
double correlation(const std::vector<int>& a, const std::vector<int>& b) {
  const auto n = static_cast<double>(a.size());
  double mean_a = 0, mean_b = 0, ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    mean_a += a[i] / n;
    mean_b += b[i] / n;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

Tensor random(const Shape& shape, uint64_t seed) {
  const Tensor x = Tensor::empty(shape);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mut<float>()[i] = uniform({seed, 0}, static_cast<uint64_t>(i)) - 0.5f;
  return x;
}

}  // namespace

TEST_CASE("metrics: a table by hand") {
  // tn 6, fp 1, fn 2, tp 3
  const Confusion c = confusion({{6, 1}, {2, 3}});
  CHECK(c.total() == 12);
  CHECK(c.correct() == 9);
  CHECK(c.accuracy() == doctest::Approx(0.75));
  CHECK(c.f1() == doctest::Approx(6.0 / 9));
  CHECK(c.f1(0) == doctest::Approx(12.0 / 15));
  CHECK(c.macro_f1() == doctest::Approx((6.0 / 9 + 0.8) / 2));
  CHECK(c.mean_iou() == doctest::Approx((6.0 / 9 + 3.0 / 6) / 2));
  CHECK(confusion({{4, 1, 0}, {0, 3, 0}, {0, 0, 0}}).mean_iou() ==
        doctest::Approx((4.0 / 5 + 3.0 / 4) / 2));  // no pixel is of the third class
  CHECK(c.matthews() == doctest::Approx((3.0 * 6 - 1.0 * 2) / std::sqrt(4.0 * 5 * 7 * 8)));
}

TEST_CASE("metrics: the first of equal logits is the prediction") {
  // findings/torch_topk_ties.sh
  const Tensor logits = Tensor::zeros({5, 1000});
  for (const auto& [row, at] : {std::pair{1, 0}, {2, 999}, {3, 4}, {3, 7}, {4, 998}, {4, 999}})
    logits.mut<float>()[row * 1000 + at] = 1;
  const std::vector<int64_t> first = {0, 0, 999, 4, 998};
  for (const DType dtype : {DType::f32, DType::f64}) {
    Confusion c(1000);
    c.add(ops::cast(logits, dtype), Tensor::from<int64_t>(first, {5}));
    CHECK(c.correct() == 5);
  }
}

TEST_CASE("metrics: Matthews of two classes is the correlation of the answers") {
  std::vector<int> a, b;
  Confusion c(2);
  for (uint64_t i = 0; i < 200; ++i) {
    a.push_back(uniform({1, 0}, i) < 0.3f ? 1 : 0);
    b.push_back(uniform({2, 0}, i) < 0.7f ? a.back() : 1 - a.back());
    c.add(a.back(), b.back());
  }
  CHECK(c.matthews() == doctest::Approx(correlation(a, b)).epsilon(1e-12));
}

TEST_CASE("metrics: perfect, constant, inverse and absent answers") {
  CHECK(confusion({{5, 0}, {0, 4}}).matthews() == doctest::Approx(1));
  CHECK(confusion({{0, 5}, {4, 0}}).matthews() == doctest::Approx(-1));
  CHECK(confusion({{5, 0}, {4, 0}}).matthews() == 0);
  CHECK(confusion({{5, 0}, {4, 0}}).f1() == 0);
  CHECK(confusion({{5, 0, 0}, {0, 4, 0}, {0, 0, 0}}).matthews() == doctest::Approx(1));
  CHECK(confusion({{5, 0, 0}, {0, 4, 0}, {0, 0, 0}}).f1(2) == 0);
  // Three classes: 9 samples, 6 right, targets (4, 3, 2), predictions (5, 3, 1).
  CHECK(confusion({{3, 1, 0}, {1, 2, 0}, {1, 0, 1}}).matthews() ==
        doctest::Approx((54.0 - 31) / std::sqrt((81.0 - 29) * (81 - 35))).epsilon(1e-12));
  CHECK(std::isnan(Confusion(2).accuracy()));
  CHECK(Confusion(2).matthews() == 0);
}

TEST_CASE("metrics: batches add up to the whole, whatever their sizes") {
  const int64_t n = 60, classes = 4;
  const Tensor logits = random({n, classes}, 3);
  const Tensor target = Tensor::empty({n}, DType::i64);
  for (int64_t i = 0; i < n; ++i) target.mut<int64_t>()[i] = i % 5 == 4 ? -100 : i % classes;
  Confusion whole(classes), parts(classes);
  whole.add(logits, target);
  CHECK(whole.total() == 48);
  for (int64_t begin = 0; begin < n; begin += 7) {
    Confusion part(classes);
    const int64_t end = std::min(n, begin + 7);
    part.add(logits.slice(0, begin, end), target.slice(0, begin, end));
    parts += part;
  }
  for (int64_t t = 0; t < classes; ++t)
    for (int64_t p = 0; p < classes; ++p) CHECK(parts.count(t, p) == whole.count(t, p));
  // Sequences, and another layout.
  Confusion sequences(classes), strided(classes);
  sequences.add(logits.view({12, 5, classes}), target.view({12, 5}));
  CHECK(sequences.matthews() == whole.matthews());
  strided.add(logits.view({12, 5, classes}).transpose(0, 1), target.view({12, 5}).transpose(0, 1));
  CHECK(strided.correct() == whole.correct());
  // Equal logits: the first.
  Confusion even(2);
  even.add(Tensor::zeros({3, 2}), Tensor::zeros({3}, DType::i64));
  CHECK(even.accuracy() == 1);
}

TEST_CASE("metrics: micro-F1 of multi-label answers, with and without a mask") {
  const Tensor logits = Tensor::from<float>({1, -1, 2, -3, 0, 4, -1, 5}, {4, 2});
  const Tensor target = Tensor::from<float>({1, 1, 0, 0, 1, 1, 0, 1}, {4, 2});
  MultiLabelCounts all;
  all.add(logits, target);
  // yes to (0, 0), (1, 0), (2, 1), (3, 1); a logit of 0 says no.
  CHECK(all.true_positives == 3);
  CHECK(all.false_positives == 1);
  CHECK(all.false_negatives == 2);
  CHECK(all.true_negatives == 2);
  CHECK(all.micro_f1() == doctest::Approx(6.0 / 9));
  CHECK(all.accuracy() == doctest::Approx(5.0 / 8));
  MultiLabelCounts masked, rest;
  masked.add(logits, target, Tensor::from<bool>({true, false, false, true}, {4}));
  CHECK(masked.micro_f1() == doctest::Approx(4.0 / 5));
  rest.add(logits, target, Tensor::from<float>({0, 1, 0.5f, 0}, {4}));
  rest += masked;
  CHECK(rest.micro_f1() == all.micro_f1());
  MultiLabelCounts ignoring;
  ignoring.add(logits, Tensor::from<float>({1, 1, -100, -100, 1, 1, 0, -100}, {4, 2}));
  CHECK(ignoring.total() == 5);
  CHECK(ignoring.correct() == 3);
  CHECK(ignoring.micro_f1() == doctest::Approx(4.0 / 6));
  MultiLabelCounts bytes;
  bytes.add(logits, Tensor::from<uint8_t>({1, 1, 0, 0, 1, 1, 0, 1}, {4, 2}));
  CHECK(bytes.micro_f1() == all.micro_f1());
  CHECK(MultiLabelCounts().micro_f1() == 0);
  CHECK(std::isnan(MultiLabelCounts().accuracy()));
}

TEST_CASE("metrics: mistakes are named") {
  CHECK_THROWS_WITH_AS(Confusion(0), doctest::Contains("at least one class"), Error);
  Confusion c(3);
  CHECK_THROWS_WITH_AS(c.add(3, 0), doctest::Contains("a class in [0, 3), got 3"), Error);
  CHECK_THROWS_WITH_AS(c.add(0, -1), doctest::Contains("got -1"), Error);
  CHECK_THROWS_WITH_AS(c += Confusion(2), doctest::Contains("counts of 3 classes, got 2"), Error);
  CHECK_THROWS_WITH_AS(c.f1(3), doctest::Contains("a class in [0, 3)"), Error);
  const Tensor x = Tensor::zeros({2, 3}), t = Tensor::zeros({2}, DType::i64);
  CHECK_THROWS_WITH_AS(c.add(Tensor::zeros({2, 4}), t), doctest::Contains("logits of 3 classes"),
                       Error);
  CHECK_THROWS_WITH_AS(c.add(x, Tensor::zeros({2})), doctest::Contains("target [2] i64"), Error);
  CHECK_THROWS_WITH_AS(c.add(Tensor::zeros({2, 3}, DType::i64), t),
                       doctest::Contains("floating dtype"), Error);
  CHECK_THROWS_WITH_AS(c.add(Tensor::empty({2, 3}, DType::f32, kMeta), t),
                       doctest::Contains("logits with values"), Error);
  MultiLabelCounts m;
  CHECK_THROWS_WITH_AS(m.add(Tensor::zeros({2}), Tensor::zeros({2})),
                       doctest::Contains("logits [N, C]"), Error);
  CHECK_THROWS_WITH_AS(m.add(x, t), doctest::Contains("target of shape [2, 3]"), Error);
  CHECK_THROWS_WITH_AS(m.add(x, x, Tensor::zeros({3})), doctest::Contains("a mask of shape [2]"),
                       Error);
}

TEST_CASE("r2 is the share of the values' variance that outputs explain, over all batches") {
  FitOfValues fit;
  CHECK(std::isnan(fit.r2()));
  fit.add(Tensor::from<float>({1, 10, 2, 20}, {2, 2}), Tensor::from<float>({1, 10, 3, 20}, {2, 2}));
  fit.add(Tensor::from<float>({5, 60}, {1, 2}), Tensor::from<float>({5, 30}, {1, 2}));
  // Columns 1 3 5 and 10 20 30: errors 1 and 900, spreads 8 and 200.
  CHECK(fit.r2() == doctest::Approx((1 - 1.0 / 8 + 1 - 900.0 / 200) / 2));
  FitOfValues constant;
  constant.add(Tensor::full({3, 1}, 2), Tensor::full({3, 1}, 2));
  CHECK(constant.r2() == 1);
  CHECK_THROWS_WITH_AS(fit.add(Tensor::zeros({2, 1}), Tensor::zeros({2})),
                       doctest::Contains("of one shape [N, C]"), Error);
}
