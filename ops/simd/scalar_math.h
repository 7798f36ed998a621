// exp, tanh and the tail of the normal distribution for f32, without branches or calls, so that
// compilers vectorise loops over them. For f64 they call the standard library. Compiled for every
// backend.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/host_device.h"

namespace frugal::ops::math {

// Returns `yes` if `condition`, else `no`. Works on the bits: with `?:` the compiler could move
// work into a branch, and the loop would stay scalar.
FRUGAL_HD float choose(bool condition, float yes, float no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(yes) & mask) |
                              (std::bit_cast<uint32_t>(no) & ~mask));
}

// a b + c. CUDA rounds once, whatever is around it: several kernels compute these functions and
// must give the same bits. On CPUs the compiler decides.
FRUGAL_HD float multiply_add(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return a * b + c;
#endif
}

FRUGAL_HD float power_of_2(int32_t exponent) {  // REQUIRES: the result is a normal number
  return std::bit_cast<float>((static_cast<uint32_t>(exponent) + 127u) << 23);
}

// e^x = fraction 2^exponent. REQUIRES: |x| is small enough for the exponent.
struct Exponential {
  float fraction;
  int32_t exponent;
};
FRUGAL_HD Exponential exponential(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float shifted = multiply_add(x, static_cast<float>(std::numbers::log2e), kRound);
  const float n = shifted - kRound;
  const float r = multiply_add(-n, kLn2Low, multiply_add(-n, kLn2High, x));  // |r| <= ln(2) / 2
  float p = 1.0f / 5040;  // Taylor: the next term is below 6e-9
  p = multiply_add(p, r, 1.0f / 720);
  p = multiply_add(p, r, 1.0f / 120);
  p = multiply_add(p, r, 1.0f / 24);
  p = multiply_add(p, r, 1.0f / 6);
  p = multiply_add(p, r, 0.5f);
  p = multiply_add(p * r, r, r) + 1.0f;
  const uint32_t bits = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  return {p, std::bit_cast<int32_t>(bits)};
}

// Within 2 ulp. Gives 0 below -104, inf above 89, and NaN for NaN.
FRUGAL_HD float exp(float x) {
  x = choose(x > 89.0f, 89.0f, x);
  x = choose(x < -104.0f, -104.0f, x);
  const Exponential e = exponential(x);
  // 2^n is made as two factors, because n may be an exponent of a subnormal number.
  const int32_t half = e.exponent >> 1;
  return e.fraction * power_of_2(half) * power_of_2(e.exponent - half);
}

// exp(x) for x <= 88, except that results below the smallest normal number become 0. Subnormal
// numbers cost hundreds of cycles on some machines.
FRUGAL_HD float exp_or_0(float x) {
  constexpr float kLeast = -87;
  const bool gone = x < kLeast;
  const Exponential e = exponential(choose(gone, kLeast, x));
  return choose(gone, 0.0f, e.fraction * power_of_2(e.exponent));
}

// Within 4 ulp.
FRUGAL_HD float tanh(float x) {
  const float a = std::fabs(x), s = x * x;
  // Near 0 an odd polynomial (least squares at Chebyshev points up to 0.63). It keeps the relative
  // precision that 1 - 2 / (e^2a + 1) loses there.
  float p = -0.00606220867f;
  p = multiply_add(p, s, 0.0209741350f);
  p = multiply_add(p, s, -0.0538462624f);
  p = multiply_add(p, s, 0.133327410f);
  p = multiply_add(p, s, -0.333333284f);
  const float small = multiply_add(a * s, p, a);
  const float large = 1.0f - 2.0f / (exp(2.0f * a) + 1.0f);
  return std::copysign(choose(a < 0.625f, small, large), x);
}

// e^(-x^2 / 2). It is a function of its own so that the compiler computes it once for two users.
FRUGAL_HD float bell(float x) { return exp_or_0(-x * x / 2); }

// P(X <= x) of the standard normal distribution. The error is 1e-6 of the smaller tail; far from 0
// it grows as x^2 / 10.
FRUGAL_HD float normal_cdf(float x) {
  // A polynomial in t = 1 / (1 + |x| / sqrt(8)) for tail / (t bell(x)). It has the least relative
  // error (4e-8) for |x| up to 14.
  const float t =
      1.0f / multiply_add(std::fabs(x), static_cast<float>(std::numbers::sqrt2 / 4), 1.0f);
  float p = -0.0295189619f;
  p = multiply_add(p, t, 0.142211542f);
  p = multiply_add(p, t, -0.243442178f);
  p = multiply_add(p, t, 0.138852403f);
  p = multiply_add(p, t, -0.0131874951f);
  p = multiply_add(p, t, 0.101290151f);
  p = multiply_add(p, t, 0.121565424f);
  p = multiply_add(p, t, 0.141185775f);
  p = multiply_add(p, t, 0.141043320f);
  const float tail = t * p * bell(x);
  return choose(x < 0.0f, tail, 1.0f - tail);
}

FRUGAL_HD double exp(double x) { return std::exp(x); }
FRUGAL_HD double tanh(double x) { return std::tanh(x); }
FRUGAL_HD double bell(double x) { return std::exp(-x * x / 2); }
FRUGAL_HD double normal_cdf(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

}  // namespace frugal::ops::math
