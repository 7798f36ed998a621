#include "core/recent.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>

using namespace frugal;

TEST_CASE("the entry least recently used goes first") {
  Recent<std::string, std::unique_ptr<int>> cache(2);
  CHECK(cache.find("a") == nullptr);
  cache.put("a", std::make_unique<int>(1));
  CHECK(*cache.put("b", std::make_unique<int>(2)) == 2);
  REQUIRE(cache.find("a") != nullptr);
  cache.put("c", std::make_unique<int>(3));
  CHECK(cache.size() == 2);
  CHECK(cache.find("b") == nullptr);
  CHECK(**cache.find("a") == 1);
  CHECK(**cache.find("c") == 3);
}

TEST_CASE("a value that is put again is replaced, and counts as used") {
  Recent<int, int> cache(2);
  cache.put(1, 10);
  cache.put(2, 20);
  cache.put(1, 11);
  cache.put(3, 30);
  CHECK(*cache.find(1) == 11);
  CHECK(cache.find(2) == nullptr);
  CHECK_THROWS_AS((Recent<int, int>(0)), InternalError);
}
