#include "ops/dense/operators.h"

#include <doctest/doctest.h>

#include <cmath>

#include "ops/dense/copy.h"
#include "tests/ops/samples.h"

using namespace frugal;

namespace {
using V = std::vector<double>;
}  // namespace

TEST_CASE("arithmetic of tensors and numbers") {
  const Tensor a = Tensor::of({{1, 2}, {3, 4}}), row = Tensor::of({10, 20});
  CHECK((a + row).to_vector() == V{11, 22, 13, 24});
  CHECK((a - row).to_vector() == V{-9, -18, -7, -16});
  CHECK((row * a).to_vector() == V{10, 40, 30, 80});
  CHECK((row / Tensor::of({{4}, {5}})).to_vector() == V{2.5, 5, 2, 4});
  CHECK((-row).to_vector() == V{-10, -20});
  CHECK((a + 1).to_vector() == V{2, 3, 4, 5});
  CHECK((1 + a).to_vector() == V{2, 3, 4, 5});
  CHECK((a - 1).to_vector() == V{0, 1, 2, 3});
  CHECK((1 - a).to_vector() == V{0, -1, -2, -3});
  CHECK((a * 2).to_vector() == V{2, 4, 6, 8});
  CHECK((2 * a).to_vector() == V{2, 4, 6, 8});
  CHECK((a / 2).to_vector() == V{0.5, 1, 1.5, 2});
  CHECK((12 / a).to_vector() == V{12, 6, 4, 3});
  CHECK((1 / Tensor::of({2, 4}, DType::f64)).dtype() == DType::f64);
  CHECK((a + Tensor::zeros({2, 2}, DType::f32, kCpu)).storage()->id() != a.storage()->id());
  CHECK_THROWS_WITH_AS(a + Tensor::of({1, 2, 3}), doctest::Contains("broadcast"), Error);
  CHECK_THROWS_WITH_AS(a + Tensor::of({1, 2}, DType::f64), doctest::Contains("one dtype"), Error);
  const Tensor meta = Tensor::zeros({3}, DType::f32, kMeta);
  CHECK((1 / (meta * 2 + meta)).shape() == Shape{3});
}

TEST_CASE("comparison gives bool, for every dtype") {
  for (const DType dtype : ops::kAllTypes) {
    CAPTURE(name_of(dtype));
    const Tensor a = Tensor::of({0, 1, 1}, dtype), b = Tensor::of({1, 1, 0}, dtype);
    CHECK((a == b).to_vector() == V{0, 1, 0});
    CHECK((a != b).to_vector() == V{1, 0, 1});
    CHECK((a < b).to_vector() == V{1, 0, 0});
    CHECK((a <= b).to_vector() == V{1, 1, 0});
    CHECK((a > b).to_vector() == V{0, 0, 1});
    CHECK((a >= b).to_vector() == V{0, 1, 1});
    CHECK((a == 1).to_vector() == V{0, 1, 1});
    CHECK((0 < a).to_vector() == V{0, 1, 1});
    CHECK((1 <= a).to_vector() == V{0, 1, 1});
    CHECK((1 > a).to_vector() == V{1, 0, 0});
    CHECK((0 >= a).to_vector() == V{1, 0, 0});
    CHECK((0 != a).to_vector() == V{0, 1, 1});
    CHECK((a < b).dtype() == DType::bool_);
  }
}

TEST_CASE("comparison of special values, views and many elements") {
  const Tensor nan = Tensor::of({NAN, 1});
  CHECK((nan == nan).to_vector() == V{0, 1});
  CHECK((nan != nan).to_vector() == V{1, 0});
  CHECK((nan >= nan).to_vector() == V{0, 1});
  CHECK((Tensor::of({0.1}) == 0.1).item() == 1);  // the number is rounded as the elements are
  const int64_t large = (int64_t{1} << 53) + 1;
  CHECK((Tensor::from<int64_t>({large}, {1}) == Tensor::from<int64_t>({large - 1}, {1})).item() ==
        0);
  CHECK_THROWS_WITH_AS(Tensor::of({1}, DType::i64) > 0.5, doctest::Contains("i64 holds, got 0.5"),
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::of({1}) == Tensor::of({1}, DType::i64),
                       doctest::Contains("[compare] expected tensors of one dtype"), Error);
  CHECK_THROWS_WITH_AS(Tensor() == 1, doctest::Contains("[compare] expected x"), Error);

  // Rows and columns of a size that several threads share.
  const Tensor x = Tensor::randn({301, 257}, {1, 0}), row = Tensor::randn({257}, {2, 0});
  const Tensor column = Tensor::randn({301, 1}, {3, 0});
  const auto check = [&](const Tensor& a, const Tensor& b) {
    const Tensor got = a < b;
    CHECK(got.is_contiguous());
    const auto va = (a + Tensor::zeros(got.shape())).to_vector(),
               vb = (b + Tensor::zeros(got.shape())).to_vector(), y = got.to_vector();
    int64_t wrong = 0;
    for (size_t i = 0; i < y.size(); ++i) wrong += (y[i] != 0) != (va[i] < vb[i]);
    CHECK(wrong == 0);
  };
  check(x, row);
  check(column, x);
  check(row, column);
  check(x.transpose(0, 1), ops::contiguous(x.transpose(0, 1)) * 1.5);
  CHECK((Tensor::zeros({0, 3}) < 1).numel() == 0);
  CHECK((Tensor::zeros({3}, DType::f32, kMeta) < 1).shape() == Shape{3});
}
