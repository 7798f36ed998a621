// exp, tanh and the normal distribution's tail for f32 without branches or calls, so that loops
// over them are vectorised; f64 takes the standard library's. Compiled for every backend.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/host_device.h"

namespace frugal::ops::math {

// yes where `condition`, else no. Through the bits: the compiler could move the work behind `?:`
// into a branch, and the loop would stay scalar.
FRUGAL_HD float choose(bool condition, float yes, float no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(yes) & mask) |
                              (std::bit_cast<uint32_t>(no) & ~mask));
}

// Within 2 ulp; 0 below -104, inf above 89, NaN of NaN.
FRUGAL_HD float exp(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  x = choose(x > 89.0f, 89.0f, x);
  x = choose(x < -104.0f, -104.0f, x);
  const float shifted = x * static_cast<float>(std::numbers::log2e) + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  float p = 1.0f / 5040;                             // Taylor: the next term is below 6e-9
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  // 2^n in two factors, since n reaches the subnormals.
  const uint32_t bits = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const int32_t exponent = std::bit_cast<int32_t>(bits), half = exponent >> 1;
  const auto power = [](int32_t e) {
    return std::bit_cast<float>((static_cast<uint32_t>(e) + 127u) << 23);
  };
  return p * power(half) * power(exponent - half);
}

// Within 4 ulp.
FRUGAL_HD float tanh(float x) {
  const float a = std::fabs(x), s = x * x;
  // Near 0 an odd polynomial (least squares at Chebyshev points up to 0.63), which keeps the
  // relative precision that 1 - 2 / (e^2a + 1) loses.
  float p = -0.00606220867f;
  p = p * s + 0.0209741350f;
  p = p * s - 0.0538462624f;
  p = p * s + 0.133327410f;
  p = p * s - 0.333333284f;
  const float small = a + a * s * p;
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return std::copysign(choose(a < 0.625f, small, large), x);
}

// P(X <= x) of the standard normal distribution, to 1e-6 of its smaller tail (times x^2 / 10 far
// out).
FRUGAL_HD float normal_cdf(float x) {
  const float a = std::fabs(x);
  // log(tail / t) + x^2 / 2 as a polynomial of t = 1 / (1 + a / sqrt(8)), least squares at
  // Chebyshev points up to a = 14.
  const float t = 1.0f / (1.0f + a * static_cast<float>(std::numbers::sqrt2 / 4));
  float p = 0.148059830f;
  p = p * t - 0.697874129f;
  p = p * t + 1.19684815f;
  p = p * t - 0.749624848f;
  p = p * t - 0.0361684971f;
  p = p * t - 0.0221389737f;
  p = p * t + 0.0425483920f;
  p = p * t + 0.384982437f;
  p = p * t + 0.998825133f;
  p = p * t - 1.95860457f;
  const float tail = t * exp(p - x * x * 0.5f);
  return choose(x < 0.0f, tail, 1.0f - tail);
}

FRUGAL_HD double exp(double x) { return std::exp(x); }
FRUGAL_HD double tanh(double x) { return std::tanh(x); }
FRUGAL_HD double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

}  // namespace frugal::ops::math
