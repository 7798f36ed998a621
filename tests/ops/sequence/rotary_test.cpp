#include "ops/sequence/rotary.h"

#include <doctest/doctest.h>

#include "tests/ops/samples.h"

namespace frugal::ops {

TEST_CASE("rotary: pairs are turned by their position's angle, and back") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor x = normals({2, 5, 3, 6}, 1, dtype);
    const Tensor at = Tensor::from<int64_t>({0, 1, 7, 1000, 3}, {5});
    const Tensor y = rotary(x, at, {.base = 100});
    std::vector<double> expected(static_cast<size_t>(x.numel()));
    for (int64_t i = 0; i < x.numel(); ++i) {
      const int64_t k = i % 6, pair = k % 3, t = i / 18 % 5;
      const double angle = at.item(t) * std::pow(100.0, -static_cast<double>(pair) / 3);
      const double a = x.item(i - k + pair), b = x.item(i - k + pair + 3);
      expected[static_cast<size_t>(i)] = k < 3 ? a * std::cos(angle) - b * std::sin(angle)
                                               : b * std::cos(angle) + a * std::sin(angle);
    }
    CHECK(error(y, expected) < (dtype == DType::f32 ? 1e-6 : 1e-13));
    CHECK(error(rotary(y, at, {.base = 100}, true), x.to_vector()) < 1e-6);
    CHECK(same_bits(rotary(with_gaps(x), at, {.base = 100}), y));
  }
}

TEST_CASE("rotary: scores depend on distances alone; without positions they count from 0") {
  const Tensor x = normals({1, 1, 1, 8}, 1, DType::f64), z = normals({1, 1, 1, 8}, 2, DType::f64);
  const auto score = [&](int64_t a, int64_t b) {
    const Tensor p = rotary(x, Tensor::from<int64_t>({a}, {1}), {});
    const Tensor q = rotary(z, Tensor::from<int64_t>({b}, {1}), {});
    double sum = 0;
    for (int64_t i = 0; i < 8; ++i) sum += p.item(i) * q.item(i);
    return sum;
  };
  CHECK(score(3, 5) == doctest::Approx(score(103, 105)));
  const Tensor many = normals({2, 4, 2, 4}, 3);
  CHECK(same_bits(rotary(many, {}, {.base = 10}),
                  rotary(many, Tensor::from<int64_t>({0, 1, 2, 3}, {4}), {.base = 10})));
  CHECK(rotary(Tensor::empty({1, 2, 3, 4}, DType::f32, kMeta), {}, {.base = 10}).shape() ==
        Shape{1, 2, 3, 4});
}

TEST_CASE("rotary: rows with positions of their own are those of each row alone") {
  const Tensor x = normals({2, 5, 3, 6}, 1);
  const Tensor at = Tensor::from<int64_t>({0, 1, 2, 0, 1, 7, 8, 0, 1, 1000}, {2, 5});
  const Tensor y = rotary(x, at, {.base = 100}), back = rotary(y, at, {.base = 100}, true);
  for (int64_t n = 0; n < 2; ++n)
    CHECK(same_bits(contiguous(y.slice(0, n, n + 1)),
                    rotary(x.slice(0, n, n + 1), contiguous(at.select(0, n)), {.base = 100})));
  CHECK(error(back, x.to_vector()) < 1e-6);
}

TEST_CASE("rotary: the number of threads does not matter") {
  const Tensor x = normals({3, 65, 4, 64}, 1);
  const Tensor one = [&] {
    const ThreadsScope threads(1);
    return rotary(x, {}, {});
  }();
  const ThreadsScope threads(3);
  CHECK(same_bits(rotary(x, {}, {}), one));
}

TEST_CASE("rotary: frequencies for longer sequences are as published") {
  using Scaling = RotaryOptions::Scaling;
  constexpr int64_t kHalf = 8;
  const RotaryOptions plain{.base = 1000};
  const std::vector<double> own = frequencies_of(plain, kHalf);
  RotaryOptions linear = plain;
  linear.scaling = Scaling::linear;
  linear.factor = 4;
  for (int64_t i = 0; i < kHalf; ++i)
    CHECK(frequency_of(linear, i, kHalf) == doctest::Approx(own[static_cast<size_t>(i)] / 4));

  RotaryOptions llama = plain;
  llama.scaling = Scaling::llama3;
  llama.factor = 8;
  llama.first_length = 100;
  for (int64_t i = 0; i < kHalf; ++i) {
    const double w = own[static_cast<size_t>(i)], length = 2 * std::numbers::pi / w;
    const double s = (100 / length - 1) / 3;
    const double expected = length < 25 ? w : length > 100 ? w / 8 : (1 - s) * w / 8 + s * w;
    CHECK(frequency_of(llama, i, kHalf) == doctest::Approx(expected));
  }

  RotaryOptions yarn = plain;
  yarn.scaling = Scaling::yarn;
  yarn.factor = 8;
  yarn.first_length = 100;
  yarn.most_turns = 10;
  // 10 turns within 100 positions: pair 0.54; 1 turn: pair 3.2. The change goes from 0 to 4.
  for (int64_t i = 0; i < kHalf; ++i) {
    const double w = own[static_cast<size_t>(i)], share = std::min(static_cast<double>(i) / 4, 1.0);
    CHECK(frequency_of(yarn, i, kHalf) == doctest::Approx(w / 8 * share + w * (1 - share)));
  }
  yarn.whole_pairs = false;
  const double begin = 8 * std::log(100 / (10 * 2 * std::numbers::pi)) / std::log(1000),
               end = 8 * std::log(100 / (2 * std::numbers::pi)) / std::log(1000);
  const double share = (2 - begin) / (end - begin);
  CHECK(frequency_of(yarn, 2, kHalf) == doctest::Approx(own[2] / 8 * share + own[2] * (1 - share)));

  RotaryOptions dynamic = plain;
  dynamic.scaling = Scaling::dynamic;
  dynamic.factor = 2;
  dynamic.first_length = 10;
  CHECK(at_length(dynamic, 10, 16).base == 1000);
  CHECK(at_length(dynamic, 30, 16).base == doctest::Approx(1000 * std::pow(5.0, 16.0 / 14)));
  const Tensor x = normals({1, 30, 1, 16}, 1, DType::f64);
  CHECK(
      same_bits(rotary(x, {}, dynamic), rotary(x, {}, {.base = 1000 * std::pow(5.0, 16.0 / 14)})));
  const Tensor last = x.slice(1, 29, 30), at = Tensor::from<int64_t>({29}, {1});
  CHECK(error(rotary(last, at, dynamic),
              contiguous(rotary(x, {}, dynamic).slice(1, 29, 30)).to_vector()) < 1e-15);

  RotaryOptions gained = plain;
  gained.gain = 1.5;
  std::vector<double> longer = rotary(x, {}, plain).to_vector();
  for (double& value : longer) value *= 1.5;
  CHECK(error(rotary(x, {}, gained), longer) < 1e-14);
}

}  // namespace frugal::ops
