#include "core/parallel.h"

#include <doctest/doctest.h>

#include <thread>

#include "core/error.h"

namespace frugal {
namespace {

constexpr int64_t kMany = 1 << 20;

TEST_CASE("a limit of threads holds for the loops of its thread, while it lives") {
  const int before = num_threads();
  set_num_threads(4);
  CHECK(parallel_ranges(kMany, 1) == 4);
  {
    const ThreadLimit three(3);
    CHECK(parallel_ranges(kMany, 1) == 3);
    {
      const ThreadLimit one(1);
      int calls = 0;
      parallel_for(0, kMany, 1, [&](int64_t begin, int64_t end) {
        ++calls;
        CHECK(end - begin == kMany);
      });
      CHECK(calls == 1);
    }
    CHECK(parallel_ranges(kMany, 1) == 3);
    std::thread([] {
      set_num_threads(4);  // OpenMP's number is each thread's own
      CHECK(parallel_ranges(kMany, 1) == 4);
    }).join();
  }
  CHECK(parallel_ranges(kMany, 1) == 4);
  {
    const ThreadLimit more(100);
    CHECK(parallel_ranges(kMany, 1) == 4);
  }
  CHECK_THROWS_AS(ThreadLimit(0), Error);
  set_num_threads(before);
}

}  // namespace
}  // namespace frugal
