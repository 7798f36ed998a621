#include "train/noise/gradient_noise.h"

#include <doctest/doctest.h>

#include "core/rng.h"

using frugal::normal;
using namespace frugal::train;

TEST_CASE("bias and variance of known noise are found within their errors") {
  constexpr size_t kElements = 400;
  constexpr double kDeviation = 0.5;
  for (const double bias : {0.0, 0.1}) {
    CAPTURE(bias);
    std::vector<float> exact(kElements);
    for (size_t i = 0; i < kElements; ++i) exact[i] = normal({1, 0}, i);
    GradientNoise noise(exact);
    for (uint64_t draw = 0; draw < 101; ++draw) {
      std::vector<float> values = exact;
      for (size_t i = 0; i < kElements; ++i)
        values[i] +=
            static_cast<float>(bias + kDeviation * static_cast<double>(normal({2, draw}, i)));
      noise.add(values);
    }
    CHECK(noise.draws() == 101);
    const Estimate variance = noise.variance(), square = noise.squared_bias();
    const double expected = kElements * kDeviation * kDeviation;
    CHECK(std::abs(variance.value - expected) < 4 * variance.error);
    CHECK(variance.error < 0.02 * expected);
    CHECK(std::abs(square.value - kElements * bias * bias) < 4 * square.error);
    CHECK((square.value > 1.96 * square.error) == (bias > 0));
  }
}

// A mean error of the size of the deviation would show in the spread of |error|^2.
TEST_CASE("standard errors are those of repeated measurements, with a bias and without") {
  constexpr size_t kElements = 64;
  constexpr int kRepeats = 200;
  for (const float bias : {0.0F, 1.0F}) {
    CAPTURE(bias);
    double variance[2] = {}, square[2] = {}, errors[2] = {};  // sums, sums of squares
    for (uint64_t repeat = 0; repeat < kRepeats; ++repeat) {
      GradientNoise noise(std::vector<float>(kElements, 0.0F));
      for (uint64_t draw = 0; draw < 32; ++draw) {
        std::vector<float> values(kElements);
        for (size_t i = 0; i < kElements; ++i) values[i] = bias + normal({repeat, draw}, i);
        noise.add(values);
      }
      const Estimate v = noise.variance(), b = noise.squared_bias();
      variance[0] += v.value / kRepeats, variance[1] += v.value * v.value / kRepeats;
      square[0] += b.value / kRepeats, square[1] += b.value * b.value / kRepeats;
      errors[0] += v.error * v.error / kRepeats, errors[1] += b.error * b.error / kRepeats;
    }
    CHECK(variance[0] == doctest::Approx(kElements).epsilon(0.01));
    CHECK(std::abs(square[0] - bias * kElements) < 0.01 * kElements);
    CHECK(errors[0] == doctest::Approx(variance[1] - variance[0] * variance[0]).epsilon(0.25));
    CHECK(errors[1] == doctest::Approx(square[1] - square[0] * square[0]).epsilon(0.25));
  }
}

TEST_CASE("noise is found by layer: layers add up, and what has no layer counts in total alone") {
  GradientLayers layers;
  layers.spans = {{0, 10, layers.place("a")}, {10, 30, layers.place("b")}, {30, 40, 0}};
  GradientNoise noise(std::vector<float>(50, 0.0F), layers);
  GradientNoise rest(std::vector<float>(10, 0.0F));
  for (uint64_t draw = 0; draw < 16; ++draw) {
    std::vector<float> values(50);
    for (size_t i = 0; i < 50; ++i) values[i] = normal({9, draw}, i) + (i < 10 ? 2.0F : 0.0F);
    noise.add(values);
    rest.add({values.begin() + 40, values.end()});
  }
  CHECK(noise.variance().value ==
        doctest::Approx(noise.variance(0).value + noise.variance(1).value + rest.variance().value));
  CHECK(noise.squared_bias(0).value > 3 * noise.squared_bias(0).error);
  CHECK(std::abs(noise.squared_bias(1).value) < 3 * noise.squared_bias(1).error);
  CHECK(begin_of("layer1.0.conv1", 2) == "layer1.0");
  CHECK(begin_of("layer1.0.conv1", 0) == "layer1.0.conv1");
  CHECK(begin_of("fc", 3) == "fc");
}
