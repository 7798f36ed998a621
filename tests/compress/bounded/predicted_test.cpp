// The codec `predicted`: its errors, what it saves, and what it does with data that it cannot
// predict. Bounds for all data are in bounded_test.cpp.
#include "compress/bounded/bounded_predicted.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "tests/compress/quantize/samples.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

ErrorBoundedOptions dithered(uint64_t seed = 7, bool expected = false) {
  ErrorBoundedOptions options;
  options.rounding = Rounding::stochastic;
  options.seed = seed;
  options.expected = expected;
  return options;
}

int64_t bytes_of(const Tensor& x, const ErrorBound& bound, const ErrorBoundedOptions& options,
                 const char* codec = "predicted") {
  return make_error_bounded(codec, options)->pack(x, bound, entry(3))->payload().numel();
}

// Images whose pixels are like their neighbours: each is 0.9 of a mean of these and noise.
Tensor smooth(const Shape& shape, uint64_t seed) {
  std::vector<float> x = normals(shape.numel(), seed);
  const int64_t width = shape[2], channels = shape[3];
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const int64_t w = i / channels % width, h = i / channels / width % shape[1];
    const auto at = static_cast<size_t>(i);
    const auto back = [&](int64_t pixels) { return x[static_cast<size_t>(i - pixels * channels)]; };
    const float left = w > 0 ? back(1) : 0, up = h > 0 ? back(width) : 0;
    const float corner = w > 0 && h > 0 ? back(width + 1) : 0;
    x[at] = 0.9f * left + 0.9f * up - 0.81f * corner + 0.19f * x[at];
  }
  return Tensor::from(x, shape);
}

}  // namespace

TEST_CASE("errors are even over the step that the bound allows, and do not depend on the values") {
  const Tensor x = smooth({4, 16, 16, 32}, 5);
  for (const bool expected : {false, true}) {
    CAPTURE(expected);
    const double bound = 0.3, step = (expected ? std::sqrt(3.0) : 2) * bound;
    const auto y = make_error_bounded("predicted", dithered(7, expected))
                       ->pack(x, bound, entry(1))
                       ->unpack()
                       .to_vector();
    const auto values = x.to_vector();
    double square = 0, largest = 0, product = 0, norm = 0, neighbour = 0, before = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double error = y[i] - values[i];
      square += error * error, largest = std::max(largest, std::fabs(error));
      product += error * values[i], norm += values[i] * values[i];
      neighbour += error * before, before = error;
    }
    const auto n = static_cast<double>(y.size());
    CHECK(largest <= step / 2);
    CHECK(largest > 0.99 * step / 2);
    // The standard error of the mean square of n even errors is 0.9 / sqrt(n) of it.
    CHECK(square / n == doctest::Approx(step * step / 12).epsilon(5 * 0.9 / std::sqrt(n)));
    CHECK(std::fabs(product) / std::sqrt(square * norm) < 5 / std::sqrt(n));
    CHECK(std::fabs(neighbour) / square < 5 / std::sqrt(n));
    if (expected) CHECK(square / n <= bound * bound / 4 * (1 + 5 * 0.9 / std::sqrt(n)));
  }
}

TEST_CASE("taking the dither away and predicting save bits, at the same bound") {
  const Tensor noise_only = Tensor::from(normals(int64_t{8} * 16 * 16 * 32, 3), {8, 16, 16, 32});
  const Tensor images = smooth({8, 16, 16, 32}, 3);
  const auto bits = [](const Tensor& x, const char* codec, double bound, bool expected) {
    return 8 * static_cast<double>(bytes_of(x, bound, dithered(7, expected), codec)) /
           static_cast<double>(x.numel());
  };
  // The entropy of a normal number in steps of 0.02 is 2.05 - log2(0.02) = 7.69 bits, in steps of
  // 0.01 it is 8.69 bits. The table and the heads of channels take the rest.
  CHECK(bits(noise_only, "predicted", 0.01, false) < 7.85);
  CHECK(bits(noise_only, "entropy", 0.01, false) > 8.6);
  // Pixels differ from what neighbours predict by 0.19 instead of by 1.
  CHECK(bits(images, "predicted", 0.001, false) <
        bits(noise_only, "predicted", 0.001, false) - 2.2);
  // With errors as large as the deviation: h(x + e) - h(e) = 1.42 bits for e even over sqrt(3).
  CHECK(bits(noise_only, "predicted", 1, true) < 1.5);
  CHECK(bits(noise_only, "entropy", 1, true) > 2.1);
}

TEST_CASE("residuals that are too large, other channels and odd shapes come back") {
  std::vector<float> values = normals(int64_t{5} * 9 * 7 * 24, 8);
  for (size_t i = 0; i < values.size(); i += 97) values[i] *= 300;  // far from all others
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % 24 == 3) values[i] = 2.5f;
    if (i % 24 == 5) values[i] *= 1e-3f;
    if (i % 24 == 6) values[i] += 5000;
  }
  values[24 * 11 + 9] = std::numeric_limits<float>::quiet_NaN();
  values[24 * 12 + 9] = std::numeric_limits<float>::infinity();
  for (const Shape& shape :
       {Shape{5, 9, 7, 24}, Shape{5 * 9 * 7, 24}, Shape{5, 9 * 7, 24}, Shape{5 * 9, 1, 7, 24},
        Shape{5 * 9, 7, 1, 24}, Shape{5 * 9 * 7, 1, 1, 24}, Shape{1, 45, 7, 24}, Shape{1, 7560},
        Shape{7560, 1}, Shape{7560}, Shape{1, 1, 7560, 1}, Shape{1, 7560, 1, 1}}) {
    CAPTURE(shape);
    const Tensor x = Tensor::from(values, shape);
    for (const double bound : {0.5, 0.01, 1e-5}) {
      CAPTURE(bound);
      const auto packed = make_error_bounded("predicted", dithered())->pack(x, bound, entry(2));
      CHECK(packed->payload().numel() <= 4 * x.numel() + 1);
      const auto y = packed->unpack().to_vector(), again = packed->unpack().to_vector();
      CHECK(std::memcmp(y.data(), again.data(), 8 * y.size()) == 0);
      size_t wrong = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const auto value = static_cast<double>(values[i]);
        const bool same = std::isnan(value) ? std::isnan(y[i]) : value == y[i];
        wrong += !(same || std::fabs(y[i] - value) <= bound);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a payload is never larger than the values and a byte") {
  for (const Shape& shape :
       {Shape{3}, Shape{4, 300}, Shape{2, 3, 5, 7}, Shape{64, 64}, Shape{0, 3}}) {
    CAPTURE(shape);
    const Tensor x = Tensor::from(normals(shape.numel(), 4), shape);
    for (const double bound : {0.0, 1e-9, 1e-6, 1e-4, 0.1})
      CHECK(bytes_of(x, bound, dithered()) <= 4 * x.numel() + 1);
  }
}

TEST_CASE("images larger than a chunk are cut into strips") {
  const Tensor x = smooth({1, 70, 90, 40}, 9);
  const auto packed = make_error_bounded("predicted", dithered())->pack(x, 0.01, entry(0));
  const auto y = packed->unpack().to_vector(), values = x.to_vector();
  double largest = 0;
  for (size_t i = 0; i < y.size(); ++i) largest = std::max(largest, std::fabs(y[i] - values[i]));
  CHECK(largest <= 0.01);
  CHECK(largest > 0.0099);
}

TEST_CASE("zeros stay zeros where values are rounded to nearest") {
  std::vector<float> values = normals(int64_t{4096} * 8, 8);
  for (float& x : values) x = std::max(x, 0.0f);
  const Tensor x = Tensor::from(values, {4, 32, 32, 8});
  const auto y = make_error_bounded("predicted")->pack(x, 0.07, entry(0))->unpack().to_vector();
  size_t wrong = 0;
  for (size_t i = 0; i < y.size(); ++i) wrong += values[i] == 0 && y[i] != 0;
  CHECK(wrong == 0);
}

TEST_CASE("bytes and values are the same for every instruction set") {
  uint64_t digest = 1469598103934665603u;  // FNV-1a
  const auto add = [&](const void* from, int64_t bytes) {
    for (int64_t i = 0; i < bytes; ++i)
      digest = (digest ^ static_cast<const uint8_t*>(from)[i]) * 1099511628211u;
  };
  for (const Shape& shape : {Shape{4, 9, 7, 24}, Shape{100, 33}, Shape{2, 8, 8, 64}})
    for (const double bound : {1.0, 0.1, 0.003})
      for (const bool expected : {false, true}) {
        const Tensor x = Tensor::from(normals(shape.numel(), 7), shape);
        const auto packed =
            make_error_bounded("predicted", dithered(0, expected))->pack(x, bound, entry(3));
        add(packed->payload().data<uint8_t>(), packed->payload().numel());
        const Tensor y = packed->unpack();
        add(y.data<float>(), 4 * y.numel());
      }
  CHECK(digest == 0x09491d83e352f46au);
}
