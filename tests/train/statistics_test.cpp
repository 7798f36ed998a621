#include "train/statistics.h"

#include <doctest/doctest.h>

using namespace frugal::train;

TEST_CASE("rank correlation sees order alone, and ties share their rank") {
  CHECK(rank_correlation({1, 2, 3}, {10, 1000, 1e9}) == doctest::Approx(1));
  CHECK(rank_correlation({1, 2, 3}, {3, 2, 1}) == doctest::Approx(-1));
  CHECK(rank_correlation({1, 1, 1}, {3, 2, 1}) == 0);
  // Ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3: 4.5 / sqrt(4.5 * 5).
  CHECK(rank_correlation({1, 5, 5, 9}, {1, 2, 3, 4}) == doctest::Approx(0.948683));
}

TEST_CASE("the spread of ratios leaves out what is 0") {
  const Spread s = ratio_spread({2, 4, 6, 8, 10, 7, 0}, {1, 1, 1, 1, 1, 0, 3});
  CHECK(s.median == doctest::Approx(6));
  CHECK(s.low == doctest::Approx(2.8));
  CHECK(s.high == doctest::Approx(9.2));
  CHECK(ratio_spread({0}, {1}).median == 0);
}
