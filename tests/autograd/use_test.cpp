#include <doctest/doctest.h>

#include "autograd/saved_tensor.h"

namespace frugal {

TEST_CASE("a use holds what its constructor was told, and nothing else") {
  constexpr Use none;
  CHECK(none.kind == Use::Kind::other);
  CHECK(none.input == -1);

  constexpr Use product = Use::product({.input = 2, .gain = 9, .fan = 27});
  CHECK(product.kind == Use::Kind::product);
  CHECK(product.input == 2);
  CHECK(product.gain == 9);
  CHECK(product.fan == 27);
  CHECK(product.weight == -1);
  CHECK(Use::product({.input = 1, .fan = 5}).gain == 1);
  CHECK(Use::product({.input = 1, .gain = 5}).fan == 1);

  constexpr Use normalized = Use::normalized({.input = 1, .weight = 3, .invstd = 4});
  CHECK(normalized.kind == Use::Kind::normalized);
  CHECK(normalized.input == 1);
  CHECK(normalized.weight == 3);
  CHECK(normalized.invstd == 4);
  CHECK(normalized.mean == -1);

  constexpr Use rows = Use::normalized_rows(
      {.input = 1, .weight = 2, .invstd = 5, .mean = 4, .mask = 6, .groups = 8});
  CHECK(rows.kind == Use::Kind::normalized_rows);
  CHECK(rows.weight == 2);
  CHECK(rows.invstd == 5);
  CHECK(rows.mean == 4);
  CHECK(rows.mask == 6);
  CHECK(rows.groups == 8);
  const Use plain = Use::normalized_rows({.input = 1, .weight = 2, .invstd = 5});
  CHECK(plain.mean == -1);
  CHECK(plain.mask == -1);
  CHECK(plain.groups == 1);
}

}  // namespace frugal
