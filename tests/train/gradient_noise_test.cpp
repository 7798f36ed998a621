#include "train/gradient_noise.h"

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
