#include "core/rng.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"

using namespace frugal;

TEST_CASE("Philox gives the published words") {
  // Known answers of Philox 4x32-10 (Salmon et al. 2011, reference vectors).
  CHECK(philox({0, 0}, 0) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox({~uint64_t{0}, ~uint64_t{0}}, ~uint64_t{0}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
}

TEST_CASE("uniform and normal have their moments") {
  constexpr int n = 200000;
  double sum = 0, squares = 0, normal_sum = 0, normal_squares = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const double u = uniform({1, 2}, i), z = normal({3, 4}, i);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u, squares += u * u, normal_sum += z, normal_squares += z * z;
  }
  // Five standard errors.
  CHECK(std::abs(sum / n - 0.5) < 5 * std::sqrt(1.0 / 12 / n));
  CHECK(std::abs(squares / n - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / n));
  CHECK(std::abs(normal_sum / n) < 5 * std::sqrt(1.0 / n));
  CHECK(std::abs(normal_squares / n - 1) < 5 * std::sqrt(2.0 / n));
}

TEST_CASE("uniform_int draws each number equally often, of more than 32 bits, too") {
  constexpr int n = 60000;
  constexpr uint64_t kWide = uint64_t{6} << 33;
  std::vector<int> small(6), wide(6), neighbours(2);
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t of_six = uniform_int({5, 6}, i, 6), of_many = uniform_int({7, 8}, i, kWide);
    REQUIRE(of_six < 6);
    REQUIRE(of_many < kWide);
    ++small[of_six], ++wide[of_many >> 33], ++neighbours[of_many % 2];
  }
  for (const auto& counts : {small, wide, neighbours}) {
    const double share = 1.0 / static_cast<double>(counts.size());
    for (int count : counts)  // five standard errors
      CHECK(std::abs(count - n * share) < 5 * std::sqrt(n * share * (1 - share)));
  }
}

TEST_CASE("streams differ by seed and offset and can be restored") {
  CHECK(philox({1, 0}, 0) != philox({2, 0}, 0));
  CHECK(philox({1, 0}, 0) != philox({1, 1}, 0));
  Rng rng(9);
  rng.next();
  const RngKey state = rng.state();
  const RngKey drawn = rng.next();
  rng.restore(state);
  CHECK(rng.next() == drawn);
}

TEST_CASE("parallel_for covers the range once and passes exceptions on") {
  const int before = num_threads();
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    std::vector<std::atomic<int>> hits(1003);
    parallel_for(3, 1003, 10, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    for (size_t i = 0; i < hits.size(); ++i) REQUIRE(hits[i] == (i < 3 ? 0 : 1));
    CHECK_THROWS_AS(
        parallel_for(0, 100, 1, [](int64_t, int64_t) { throw std::runtime_error("inside"); }),
        std::runtime_error);
  }
  set_num_threads(before);
  CHECK_THROWS_AS(set_num_threads(0), Error);
}
