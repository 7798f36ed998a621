#include "core/fnv.h"

#include <doctest/doctest.h>

using namespace frugal;

// The published values of 64 bits: Fowler, Noll, Vo, Eastlake, RFC 9923.
TEST_CASE("FNV-1a has the published values") {
  const auto hash = [](std::string_view text) {
    Fnv1a all;
    all.add(text);
    return all.value();
  };
  CHECK(hash("") == 0xcbf29ce484222325u);
  CHECK(hash("a") == 0xaf63dc4c8601ec8cu);
  CHECK(hash("foobar") == 0x85944171f73967e8u);
}
