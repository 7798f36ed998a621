#include "core/finite.h"

#include <doctest/doctest.h>

#include <initializer_list>
#include <limits>

using namespace frugal;

TEST_CASE_TEMPLATE("numbers are finite, infinite or NaN", T, float, double) {
  using Limits = std::numeric_limits<T>;
  for (const T x : {T{0}, T{-1}, Limits::max(), Limits::lowest(), Limits::denorm_min()}) {
    CHECK(is_finite(x));
    CHECK_FALSE(is_nan(x));
  }
  for (const T x : {Limits::infinity(), -Limits::infinity()}) {
    CHECK_FALSE(is_finite(x));
    CHECK_FALSE(is_nan(x));
  }
  CHECK_FALSE(is_finite(Limits::quiet_NaN()));
  CHECK(is_nan(Limits::quiet_NaN()));
}
