#include "models/detection/anchors.h"

#include <doctest/doctest.h>

namespace frugal::models {
namespace {

#include "tests/models/detection/anchors.inc"

}  // namespace

TEST_CASE("make_anchors: torchvision's anchors") {
  const Tensor anchors = make_anchors(three_sides(8, 2), {{2, 3}, {1, 2}}, 21, 33);
  CHECK(anchors.to_vector() == kAnchors);
  CHECK(one_side(32, 2)[1].sides == std::vector<double>{64});
  CHECK_THROWS_WITH_AS(make_anchors(one_side(8, 2), {{2, 3}}, 21, 33),
                       "[anchors] expected a grid for each of 2 levels, got 1", Error);
  CHECK_THROWS_WITH_AS(make_anchors(one_side(8, 1), {{2, 40}}, 21, 33),
                       "[anchors] expected grids within 21 x 33 pixels, got 2 x 40", Error);
}

}  // namespace frugal::models
