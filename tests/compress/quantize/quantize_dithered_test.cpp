// Dithered rounding: codes of stochastic rounding whose dither is taken away again, as statistics
// and at the edges. Seeds are fixed, so a failure is a defect and not bad luck.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "compress/entropy/entropy.h"
#include "tests/compress/quantize/split_samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

QuantizeOptions dithered(int bits, uint64_t seed = 77) {
  return {bits, 256, GroupAxis::column, Rounding::dithered, seed};
}

// Checks errors over draws of elements whose steps are given, all of which are to be uniform.
struct Errors {
  explicit Errors(size_t n) : mean(n), square(n) {}
  void add(const Tensor& y, const std::vector<float>& x, const std::vector<double>& step) {
    ++draws;
    for (size_t i = 0; i < x.size(); ++i) {
      const double error = static_cast<double>(y.data<float>()[i]) - static_cast<double>(x[i]);
      REQUIRE(std::abs(error) <= step[i] / 2 + 16 * 0x1p-22);  // f32 rounds x - lo, below 16
      mean[i] += error, square[i] += error * error;
    }
  }
  void check(const std::vector<float>& x, const std::vector<double>& step) const {
    const double limit = bonferroni(static_cast<double>(x.size())), n = draws;
    double z_sum = 0, observed = 0, expected = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double variance = step[i] * step[i] / 12;
      // What u's 8 bits and f32 leave of bias.
      const double slack = step[i] * 0x1p-9 + std::abs(static_cast<double>(x[i])) * 0x1p-22;
      const double z = mean[i] / n / (std::sqrt(variance / n) + slack / limit);
      REQUIRE(std::abs(z) < limit);
      // This holds for each element, wherever it lies between two levels. The square of a uniform
      // error has a relative deviation of sqrt(4 / 5).
      REQUIRE(square[i] / n == doctest::Approx(variance).epsilon(limit * std::sqrt(0.8 / n)));
      z_sum += z, observed += square[i] / n, expected += variance;
    }
    const auto count = static_cast<double>(x.size());
    CHECK(std::abs(z_sum) / std::sqrt(count) < 5);
    CHECK(observed == doctest::Approx(expected).epsilon(5 * std::sqrt(0.8 / n / count)));
  }
  int draws = 0;
  std::vector<double> mean, square;
};

}  // namespace

TEST_CASE("errors of dithered rounding are uniform whatever the value is") {
  const Shape shape{128, 9};
  const std::vector<float> x = normals(shape.numel(), 21, 2);
  const Tensor input = Tensor::from(x, shape), out = Tensor::empty(shape);
  for (GroupAxis axis : {GroupAxis::column, GroupAxis::row})
    for (int bits : {1, 2, 4, 8}) {
      CAPTURE(bits);
      CAPTURE(static_cast<int>(axis));
      QuantizeOptions options = dithered(bits);
      options.axis = axis;
      const Quantizer codec(options);
      const PackedCase one = pack(codec, x, shape);
      const GroupLayout& layout = one.quantized().layout();
      std::vector<double> step;
      for (int64_t i = 0; i < shape.numel(); ++i)
        step.push_back(one.meta(i / layout.cols / layout.group_rows,
                                layout.shared ? 0 : i % layout.cols, true));
      Errors errors(x.size());
      for (uint64_t draw = 0; draw < 1500; ++draw) {
        const auto packed = codec.pack(input, entry(5, draw));
        static_cast<const Quantized&>(*packed).unpack_into(out);
        errors.add(out, x, step);
      }
      errors.check(x, step);
    }
}

TEST_CASE("with signs in codes, errors are uniform within each class's step and signs are exact") {
  const Shape shape{128, 6};
  for (int bits : {2, 4, 8})
    for (double slope : {0.0, 0.3}) {
      if (bits == 2 && slope == 0) continue;  // rows are drawn: split_stats_test.cpp
      CAPTURE(bits);
      CAPTURE(slope);
      const std::vector<float> x = normals(shape.numel(), 21, 2);
      const Tensor input = Tensor::from(x, shape), mask = mask_of(x, shape, Bits::sign);
      const Tensor out = Tensor::empty(shape);
      const Quantizer codec(dithered(bits));
      const std::vector<SplitGroup> groups = split_pack(codec, input, mask, slope).groups();
      std::vector<double> step;
      for (size_t i = 0; i < x.size(); ++i) step.push_back(groups[i].step(x[i] > 0));
      Errors errors(x.size());
      bool beyond = false;
      for (uint64_t draw = 0; draw < 1000; ++draw) {
        const SplitCase one = split_pack(codec, input, mask, slope, entry(5, draw));
        one.quantized().unpack_into(out);
        errors.add(out, x, step);
        if (draw % 50 == 0) REQUIRE(same_bytes(one.quantized().unpack_sign(), mask));
        for (size_t i = 0; i < x.size(); ++i)
          beyond = beyond || (x[i] > 0) != (out.data<float>()[i] > 0);
      }
      errors.check(x, step);
      CHECK(beyond);  // a value may leave its class, which its code still tells
    }
}

TEST_CASE("codes of dithered rounding are those of stochastic rounding") {
  const Shape shape{512, 20};
  const std::vector<float> x = normals(shape.numel(), 3);
  const Tensor input = Tensor::from(x, shape), mask = mask_of(x, shape, Bits::sign);
  for (int bits : {2, 4, 7}) {
    CAPTURE(bits);
    QuantizeOptions stochastic = dithered(bits);
    stochastic.rounding = Rounding::stochastic;
    for (bool split : {false, true}) {
      const Sign sign{mask, 0.2};
      SaveInfo info = entry(4, 2);
      if (split) info.sign = &sign;
      const PackedCase one{Quantizer(dithered(bits)).pack(input, info)};
      CHECK(one.bytes() == PackedCase{Quantizer(stochastic).pack(input, info)}.bytes());
    }
  }
}

TEST_CASE("zeros and constants are exact, and groups without negative values get none") {
  for (float value : {0.0f, -0.0f, 1.0f, -3.5f, -1e30f, 0x1p-126f, 1.5e38f})
    for (int bits : {1, 2, 4, 8, 16}) {
      CAPTURE(value);
      if (bits == 1 && std::abs(value) > max_magnitude(1)) continue;
      const float held = static_cast<float>(BFloat16(value));
      const std::vector<float> x(256 * 4, held);
      for (double y : pack(Quantizer(dithered(bits)), x, {256, 4}).values())
        REQUIRE(y == static_cast<double>(held));
      if (bits < 2 || std::abs(held) > kSplitMaxMagnitude) continue;
      // A class of zeros, or of any one value, beside another that spreads.
      std::vector<float> mixed = normals(256 * 4, 2, 1e-3f);
      for (size_t i = 0; i < mixed.size(); i += 3) mixed[i] = held;
      const Tensor mask = mask_of({256, 4}, [](size_t i) { return i % 3 != 0; });
      const std::vector<double> y =
          split_pack(Quantizer(dithered(bits)), mixed, {256, 4}, mask, 0).packed.values();
      for (size_t i = 0; i < y.size(); i += 3) REQUIRE(y[i] == static_cast<double>(held));
    }
  std::vector<float> relu = normals(512 * 8, 5);
  for (float& value : relu) value = std::max(value, 0.0f);
  for (int bits : {1, 2, 4, 8}) {
    const std::vector<double> y = pack(Quantizer(dithered(bits)), relu, {512, 8}).values();
    for (size_t i = 0; i < y.size(); ++i) REQUIRE((relu[i] == 0 ? y[i] == 0 : y[i] >= 0));
    std::vector<float> positive = relu;
    for (float& value : positive) value += 0.01f;
    for (double v : pack(Quantizer(dithered(bits)), positive, {512, 8}).values()) REQUIRE(v >= 0);
  }
}

TEST_CASE("dithered values of huge and tiny groups are finite, and NaN stays visible") {
  for (float magnitude : {3.18e38f, 1e38f, 1e20f, 1e-20f, 1e-37f, 1e-40f, 1e-44f})
    for (int bits : {1, 2, 3, 4, 8, 16}) {
      if (bits == 1 && magnitude > max_magnitude(1)) continue;
      CAPTURE(magnitude);
      CAPTURE(bits);
      std::vector<float> x = normals(256 * 5, 4);
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::clamp(x[i], -1.0f, 1.0f) * magnitude;
      for (size_t c = 0; c < 5; ++c) x[c] = magnitude, x[5 + c] = -magnitude;
      const PackedCase result = pack(Quantizer(dithered(bits)), x, {256, 5});
      const std::vector<double> y = result.values();
      for (size_t i = 0; i < x.size(); ++i) {
        const double scale = result.meta(0, static_cast<int64_t>(i) % 5, true);
        REQUIRE(std::isfinite(y[i]));
        REQUIRE(std::abs(y[i] - static_cast<double>(x[i])) <=
                scale * (1 + 1e-5) + static_cast<double>(magnitude) * 0x1p-22);
      }
    }
  std::vector<float> x = normals(256 * 4, 5);
  x[9] = std::nanf("");
  const std::vector<double> plain = pack(Quantizer(dithered(4)), x, {256, 4}).values();
  const SplitCase split =
      split_pack(Quantizer(dithered(4)), x, {256, 4}, mask_of(x, {256, 4}, Bits::sign), 0);
  const std::vector<double> y = split.packed.values();
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(std::isnan(plain[i]) == (i % 4 == 1));
    REQUIRE(std::isnan(y[i]) == (i % 4 == 1));
  }
}

TEST_CASE("a moved and an entropy-coded payload still know their stream") {
  const Shape shape{512, 16};
  const Tensor x = Tensor::from(normals(shape.numel(), 6), shape);
  const Quantizer codec(dithered(2));
  const auto plain = codec.pack(x, entry(7, 3));
  const Tensor expected = plain->unpack();
  auto& movable = dynamic_cast<Movable&>(*plain);
  Tensor payload = movable.take_payload();
  movable.put_payload(std::move(payload));
  CHECK(same_bytes(plain->unpack(), expected));
  const Entropy coder(std::make_unique<Quantizer>(dithered(2)),
                      {-std::numeric_limits<double>::infinity(), 0});
  const auto coded = coder.pack(x, entry(7, 3));
  REQUIRE(dynamic_cast<const EntropyCoded*>(coded.get()) != nullptr);
  CHECK(same_bytes(coded->unpack(), expected));
  CHECK(same_bytes(coded->unpack_rows(100, 301), plain->unpack_rows(100, 301)));
  CHECK(same_bytes(variance_of(*coded), variance_of(*plain)));
}

TEST_CASE("a tensor that only accounts unpacks to one that does") {
  const Tensor x = Tensor::empty({640, 33}, DType::f32, kMeta);
  const auto packed = Quantizer(dithered(3)).pack(x, {});
  CHECK(packed->unpack().shape() == Shape{640, 33});
  CHECK(variance_of(*packed).device() == kMeta);
}
