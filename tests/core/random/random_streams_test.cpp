#include "core/random/random_streams.h"

#include <doctest/doctest.h>

#include <set>
#include <string>

using namespace frugal;

TEST_CASE("no two random streams own the same keys") {
  std::set<std::string> names;
  std::set<std::array<uint32_t, 4>> words;
  for (const RandomStream& stream : streams::kAll) {
    CAPTURE(stream.name);
    CHECK(stream.keys > 0);
    CHECK(stream.first <= ~uint64_t{0} - (stream.keys - 1));  // it does not wrap around
    CHECK(names.insert(stream.name).second);
    CHECK(words.insert(philox(stream.key(7), 0)).second);
    if (stream.keys > 1) CHECK(words.insert(philox(stream.key(7, stream.keys - 1), 0)).second);
    CHECK(stream.rng(7).state() == stream.key(7));
  }
  CHECK(streams::lie_apart(streams::kAll));
}

TEST_CASE("streams that share a key are found") {
  using Pair = std::array<RandomStream, 2>;
  CHECK(streams::lie_apart(Pair{{{"a", 0, 4}, {"b", 4, 1}}}));
  CHECK(streams::lie_apart(Pair{{{"a", 9, 1}, {"b", 4, 5}}}));
  CHECK_FALSE(streams::lie_apart(Pair{{{"a", 0, 5}, {"b", 4, 1}}}));
  CHECK_FALSE(streams::lie_apart(Pair{{{"a", 4, 1}, {"b", 0, 5}}}));
  CHECK_FALSE(streams::lie_apart(Pair{{{"a", 4, 1}, {"b", 4, 1}}}));
}
