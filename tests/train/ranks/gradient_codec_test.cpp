#include "train/ranks/gradient_codec.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <doctest/doctest.h>

namespace frugal::train {
namespace {

using distributed::WireKey;

Tensor encode(const GradientCodec& codec, const Tensor& x, const WireKey& key) {
  const Tensor codes = Tensor::empty({codec.bytes(x.numel())}, DType::u8);
  codec.encode(x, key, codes);
  return codes;
}

Tensor decode(const GradientCodec& codec, const Tensor& codes, int64_t elements) {
  const Tensor x = Tensor::empty({elements});
  codec.decode(codes, x);
  return x;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.raw(), b.raw(), static_cast<size_t>(a.nbytes())) == 0;
}

// The step of the codec for each element: that of its group.
std::vector<double> steps(const Tensor& x, const GradientCodecOptions& options) {
  std::vector<double> all;
  for (int64_t begin = 0; begin < x.numel(); begin += options.group) {
    const int64_t end = std::min(x.numel(), begin + options.group);
    double least = x.item(begin), most = least;
    for (int64_t i = begin; i < end; ++i) {
      least = std::min(least, x.item(i));
      most = std::max(most, x.item(i));
    }
    const double range = most - least + std::abs(least) / 128;
    all.insert(all.end(), static_cast<size_t>(end - begin),
               range / ((1 << options.bits) - 1) * (1 + 1.0 / 64));
  }
  return all;
}

// Groups of very different sizes, one of a single value and a short one.
Tensor values() {
  const Tensor x = Tensor::randn({256 * 6 + 57}, {5, 1});
  auto* const at = x.mut<float>();
  for (int64_t i = 256; i < 512; ++i) at[i] *= 1e-6f;
  for (int64_t i = 512; i < 768; ++i) at[i] = 3.25f;
  for (int64_t i = 768; i < 1024; ++i) at[i] = 0;
  at[1100] = 1e4f;
  return x;
}

}  // namespace

TEST_CASE("codes of gradients take bits / 32 of f32, and a little for the groups") {
  constexpr int64_t kElements = 1 << 20;
  for (const int bits : {4, 8}) {
    const GradientCodec codec({.bits = bits});
    CHECK(codec.bytes(kElements) == kElements * bits / 8 + kElements / 256 * 4);
    CHECK(codec.bytes(0) == 0);
    CHECK(codec.bytes(1) <= 4 + 16);
  }
}

TEST_CASE("decoded gradients are a step of their group away at most, and right on average") {
  for (const int bits : {4, 8}) {
    const GradientCodecOptions options{.bits = bits, .seed = 3};
    const GradientCodec codec(options);
    const Tensor x = values();
    const std::vector<double> exact = x.to_vector(), step = steps(x, options);
    constexpr int kDraws = 400;
    std::vector<double> sums(exact.size(), 0.0);
    for (uint64_t draw = 0; draw < kDraws; ++draw) {
      const std::vector<double> y =
          decode(codec, encode(codec, x, {draw, draw % 7}), x.numel()).to_vector();
      bool fits = true;
      for (size_t i = 0; i < y.size(); ++i) {
        fits = fits && std::abs(y[i] - exact[i]) <= step[i] + 1e-6 * std::abs(exact[i]);
        sums[i] += y[i];
      }
      REQUIRE(fits);
    }
    // The error of a draw has a deviation of half a step at most. 6 deviations of a mean.
    for (size_t i = 0; i < exact.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(sums[i] / kDraws - exact[i]) <=
            6 * step[i] / 2 / std::sqrt(kDraws) + 1e-6 * std::abs(exact[i]));
    }
    // Groups of one value are exact.
    CHECK(sums[600] == kDraws * 3.25);
    CHECK(sums[800] == 0);
  }
}

TEST_CASE("the random words of codes follow from the seed and the key") {
  const Tensor x = values();
  const GradientCodec codec({.seed = 3}), again({.seed = 3}), other({.seed = 4});
  const Tensor codes = encode(codec, x, {5, 6});
  CHECK(same_bytes(codes, encode(again, x, {5, 6})));
  CHECK(!same_bytes(codes, encode(other, x, {5, 6})));
  CHECK(!same_bytes(codes, encode(codec, x, {6, 6})));
  CHECK(!same_bytes(codes, encode(codec, x, {5, 7})));
}

TEST_CASE("gradients that are not finite stay visible") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -3.3e38f}) {
    const GradientCodec codec({.bits = 8});
    const Tensor x = values();
    x.mut<float>()[1300] = bad;
    const std::vector<double> y = decode(codec, encode(codec, x, {}), x.numel()).to_vector();
    for (size_t i = 0; i < y.size(); ++i) CHECK(std::isnan(y[i]) == (i >= 1280 && i < 1536));
    CHECK(codec.nonfinite_groups() == 1);
  }
}

TEST_CASE("wrong tensors and options are refused") {
  const GradientCodec codec({});
  const Tensor x = Tensor::ones({100}), codes = Tensor::empty({codec.bytes(100)}, DType::u8);
  CHECK_THROWS_WITH_AS(codec.encode(Tensor::ones({100}, DType::f64), {}, codes),
                       doctest::Contains("[gradient_codec] expected contiguous f32"), Error);
  CHECK_THROWS_WITH_AS(codec.encode(Tensor::ones({1000}), {}, codes),
                       doctest::Contains("contiguous u8 on cpu for 1000 elements"), Error);
  CHECK_THROWS_WITH_AS(codec.decode(codes.slice(0, 0, 5), x),
                       doctest::Contains("contiguous u8 on cpu for 100 elements"), Error);
  CHECK_THROWS_WITH_AS(GradientCodec({.bits = 17}), doctest::Contains("1 to 16 bits, got 17"),
                       Error);
  CHECK_THROWS_WITH_AS(GradientCodec({.group = 100}), doctest::Contains("got 100"), Error);
}

}  // namespace frugal::train
