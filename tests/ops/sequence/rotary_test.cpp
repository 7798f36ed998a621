#include "ops/sequence/rotary.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("rotary: pairs are turned by their position's angle, and back") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = normals({2, 5, 3, 6}, 1, dtype);
    const Tensor at = Tensor::from<int64_t>({0, 1, 7, 1000, 3}, {5});
    const Tensor y = rotary(x, at, 100);
    std::vector<double> expected(static_cast<size_t>(x.numel()));
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t k = i % 6, pair = k % 3, t = i / 18 % 5;
      const double angle = at.item(t) * std::pow(100.0, -static_cast<double>(pair) / 3);
      const double a = x.item(i - k + pair), b = x.item(i - k + pair + 3);
      expected[static_cast<size_t>(i)] = k < 3 ? a * std::cos(angle) - b * std::sin(angle)
                                               : b * std::cos(angle) + a * std::sin(angle);
    }
    CHECK(error(y, expected) < (dtype == DType::f32 ? 1e-6 : 1e-13));
    CHECK(error(rotary(y, at, 100, true), x.to_vector()) < 1e-6);
    CHECK(same_bits(rotary(with_gaps(x), at, 100), y));
  }
}

TEST_CASE("rotary: scores depend on distances alone; without positions they count from 0") {
  const Tensor x = normals({1, 1, 1, 8}, 1, DType::f64), z = normals({1, 1, 1, 8}, 2, DType::f64);
  const auto score = [&](int64_t a, int64_t b) {
    const Tensor p = rotary(x, Tensor::from<int64_t>({a}, {1}), 10000);
    const Tensor q = rotary(z, Tensor::from<int64_t>({b}, {1}), 10000);
    double sum = 0;
    for (int64_t i = 0; i < 8; ++i) sum += p.item(i) * q.item(i);
    return sum;
  };
  CHECK(score(3, 5) == doctest::Approx(score(103, 105)));
  const Tensor many = normals({2, 4, 2, 4}, 3);
  CHECK(
      same_bits(rotary(many, {}, 10), rotary(many, Tensor::from<int64_t>({0, 1, 2, 3}, {4}), 10)));
  CHECK(rotary(Tensor::empty({1, 2, 3, 4}, DType::f32, kMeta), {}, 10).shape() ==
        Shape{1, 2, 3, 4});
}

TEST_CASE("rotary: the number of threads does not matter") {
  const Tensor x = normals({3, 65, 4, 64}, 1);
  const Tensor one = [&] {
    const ThreadsScope threads(1);
    return rotary(x, {}, 10000);
  }();
  const ThreadsScope threads(3);
  CHECK(same_bits(rotary(x, {}, 10000), one));
}

}  // namespace frugal::ops
