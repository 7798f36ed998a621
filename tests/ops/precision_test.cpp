#include "ops/precision.h"

#include <doctest/doctest.h>

using namespace frugal;

TEST_CASE("libraries take the limit for convolutions, for all else no more than products use") {
  constexpr int64_t kMiB = 1 << 20;
  CHECK(ops::library_workspace(512 * kMiB, true) == 512 * kMiB);
  CHECK(ops::library_workspace(512 * kMiB, false) == 32 * kMiB);
  CHECK(ops::library_workspace(kMiB, false) == kMiB);
  CHECK(ops::library_workspace(0, true) == 0);
}
