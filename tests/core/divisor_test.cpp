// Division by a number that is known early (core/cuda/divisor.h) against the machine's own.
#include "core/cuda/divisor.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace frugal {

TEST_CASE("divisors divide as the machine does, up to the greatest numbers") {
  std::vector<uint32_t> divisors{1, 2, 3, 5, 6, 7, 10, 31, 32, 33, 641, 65535, 65536, 65537};
  for (const uint32_t edge : {1u << 30, (1u << 31) - 1}) {
    divisors.push_back(edge - 1);
    divisors.push_back(edge);
  }
  std::mt19937 engine(1);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  for (int i = 0; i < 200; ++i) divisors.push_back((random() >> (1 + random() % 30)) + 1);
  CHECK(cuda::Divisor().divide(7).quotient == 7);
  for (const uint32_t by : divisors) {
    if (by >= 1u << 31) continue;
    const cuda::Divisor divisor(by);
    std::vector<uint32_t> numbers{0, 1, by - 1, by, by + 1, 2 * by - 1, ~0u - 1, ~0u};
    const uint32_t last = ~0u / by * by;  // the greatest multiple
    numbers.push_back(last);
    numbers.push_back(last - 1);
    for (int i = 0; i < 100; ++i) numbers.push_back(random() >> random() % 32);
    for (const uint32_t n : numbers) {
      CAPTURE(n);
      CAPTURE(by);
      REQUIRE(divisor.divide(n).quotient == n / by);
      REQUIRE(divisor.divide(n).rest == n % by);
    }
  }
}

TEST_CASE("a divisor of 0, or of more than 31 bits, is refused") {
  CHECK_THROWS(cuda::Divisor(0));
  CHECK_THROWS(cuda::Divisor(int64_t{1} << 31));
}

}  // namespace frugal
