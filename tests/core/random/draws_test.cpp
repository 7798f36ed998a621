#include "core/random/draws.h"

#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <vector>

using namespace frugal;

namespace {

std::vector<float> drawn(RngKey key, uint64_t first, int64_t count, float factor = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  draw_normal(key, first, factor, values.data(), count);
  return values;
}

// FNV-1a of the bits.
uint64_t hash(const std::vector<float>& values) {
  uint64_t h = 0xcbf29ce484222325;
  for (const float value : values) h = (h ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
  return h;
}

// What draw_normal() promises, computed in f64.
double exact_normal(RngKey key, uint64_t index, double& radius) {
  const auto words = philox(key, index / 4);
  const size_t pair = index % 4 / 2 * 2;
  const auto rounded = static_cast<float>(words[pair] >> 1 | 1);
  radius = std::sqrt(-2 * std::log(static_cast<double>(rounded) * 0x1p-31));
  const double angle = 2 * std::numbers::pi * words[pair + 1] * 0x1p-32;
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

// Draws for one instruction set after the other, all that this machine has.
template <class F>
void for_targets(F f) {
  int tried = 0;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    hwy::GetChosenTarget().DeInit();
    f();
    ++tried;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  CHECK(tried > 0);
}

}  // namespace

TEST_CASE("normal numbers are within 1e-6 of what is promised") {
  constexpr int64_t n = 1 << 20;
  const RngKey key{5, 6};
  const std::vector<float> z = drawn(key, 0, n);
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    double radius = 0;
    const double exact = exact_normal(key, static_cast<uint64_t>(i), radius);
    worst = std::max(worst, std::abs(static_cast<double>(z[static_cast<size_t>(i)]) - exact) /
                                std::max(radius, 1.0));
  }
  CHECK(worst < 1e-6);
}

TEST_CASE("normal numbers are distributed as promised") {
  constexpr int64_t n = 4 << 20;
  const std::vector<float> z = drawn({11, 0}, 0, n);
  std::array<double, 5> moments{};
  double side_by_side = 0, largest = 0;
  for (size_t i = 0; i < z.size(); ++i) {
    const auto x = static_cast<double>(z[i]);
    double power = 1;
    for (double& moment : moments) moment += power, power *= x;
    if (i % 2 == 1) side_by_side += x * static_cast<double>(z[i - 1]);
    largest = std::max(largest, std::abs(x));
  }
  // Five standard errors of each mean.
  CHECK(std::abs(moments[1] / n) < 5 * std::sqrt(1.0 / n));
  CHECK(std::abs(moments[2] / n - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(moments[3] / n) < 5 * std::sqrt(15.0 / n));
  CHECK(std::abs(moments[4] / n - 3) < 5 * std::sqrt(96.0 / n));
  CHECK(std::abs(side_by_side / (n / 2)) < 5 * std::sqrt(2.0 / n));
  CHECK(largest > 4.7);                               // expected once in 400 000 draws
  CHECK(normal({11, 0}, 1902412106) == -6.3485055f);  // expected once in 5 * 10^9

  // Chi-square over bins of equal probability.
  constexpr size_t kBins = 256;
  std::array<double, kBins> counts{};
  for (const float x : z) {
    const double below = std::erfc(-static_cast<double>(x) / std::numbers::sqrt2) / 2;
    ++counts[std::min(static_cast<size_t>(below * kBins), kBins - 1)];
  }
  double chi_square = 0;
  constexpr double expected = static_cast<double>(n) / kBins;
  for (const double count : counts)
    chi_square += (count - expected) * (count - expected) / expected;
  CHECK(std::abs(chi_square - (kBins - 1)) < 5 * std::sqrt(2.0 * (kBins - 1)));

  // The share of both tails, down to 13 expected draws.
  for (const double bound : {2.0, 3.0, 4.0, 4.5}) {
    const double share = std::erfc(bound / std::numbers::sqrt2);
    const auto count = static_cast<double>(
        std::count_if(z.begin(), z.end(), [&](float x) { return std::abs(x) > bound; }));
    CHECK(std::abs(count - share * n) < 5 * std::sqrt(share * n));
  }
}

TEST_CASE("the bits of normal numbers are the same everywhere") {
  constexpr int64_t n = 100000;
  const RngKey key{1, 2};
  for_targets([&] {
    const std::vector<float> z = drawn(key, 0, n);
    CHECK(hash(z) == 9245995684393568125u);
    for (int64_t i = 0; i < 1000; ++i)
      REQUIRE(normal(key, static_cast<uint64_t>(i)) == z[static_cast<size_t>(i)]);
    // Wherever a range begins and ends, also where counters need more than 32 bits
    for (const uint64_t from : {uint64_t{0}, (uint64_t{1} << 34) - 50})
      for (uint64_t first = from; first < from + 9; ++first)
        for (const int64_t count : {0, 1, 3, 5, 63, 64, 65, 130}) {
          const std::vector<float> some = drawn(key, first, count, 0.5f);
          for (int64_t i = 0; i < count; ++i)
            REQUIRE(some[static_cast<size_t>(i)] ==
                    0.5f * normal(key, first + static_cast<uint64_t>(i)));
        }
  });
}

TEST_CASE("uniform numbers drawn together are those drawn one by one") {
  for_targets([] {
    for (uint64_t first = 0; first < 6; ++first) {
      std::vector<float> u(200);
      draw_uniform({3, 4}, first, 0.3f, u.data(), 200);
      for (size_t i = 0; i < u.size(); ++i)
        REQUIRE(u[i] == 0.3f * (2 * uniform({3, 4}, first + i) - 1));
    }
  });
}
