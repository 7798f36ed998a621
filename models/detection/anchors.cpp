#include "models/detection/anchors.h"

#include <array>
#include <cmath>

namespace frugal::models {
namespace {

// The anchors around the origin, in f32 as torchvision computes them.
std::vector<std::array<float, 4>> corners(const AnchorLevel& level) {
  std::vector<std::array<float, 4>> all;
  for (const double ratio : level.ratios)
    for (const double side : level.sides) {
      const float tall = std::sqrt(static_cast<float>(ratio)), wide = 1 / tall;
      const float x = std::nearbyint(wide * static_cast<float>(side) / 2);
      const float y = std::nearbyint(tall * static_cast<float>(side) / 2);
      all.push_back({-x, -y, x, y});
    }
  return all;
}

}  // namespace

std::vector<AnchorLevel> three_sides(int64_t side, int64_t levels) {
  std::vector<AnchorLevel> all;
  for (int64_t i = 0; i < levels; ++i, side *= 2) {
    const auto least = static_cast<double>(side);
    all.push_back({{least, std::floor(least * std::pow(2.0, 1.0 / 3)),
                    std::floor(least * std::pow(2.0, 2.0 / 3))}});
  }
  return all;
}

std::vector<AnchorLevel> one_side(int64_t side, int64_t levels) {
  std::vector<AnchorLevel> all;
  for (int64_t i = 0; i < levels; ++i, side *= 2) all.push_back({{static_cast<double>(side)}});
  return all;
}

Tensor make_anchors(const std::vector<AnchorLevel>& levels, const std::vector<GridSize>& grids,
                    int64_t height, int64_t width) {
  FRUGAL_CHECK(levels.size() == grids.size(),
               "[anchors] expected a grid for each of {} levels, got {}", levels.size(),
               grids.size());
  int64_t rows = 0;
  for (size_t l = 0; l < levels.size(); ++l) {
    FRUGAL_CHECK(grids[l].height >= 1 && grids[l].width >= 1 && grids[l].height <= height &&
                     grids[l].width <= width,
                 "[anchors] expected grids within {} x {} pixels, got {} x {}", height, width,
                 grids[l].height, grids[l].width);
    rows += grids[l].height * grids[l].width * levels[l].each();
  }
  Tensor anchors = Tensor::empty({rows, 4});
  auto* out = anchors.mut<float>();
  for (size_t l = 0; l < levels.size(); ++l) {
    const auto around = corners(levels[l]);
    const int64_t down = height / grids[l].height, right = width / grids[l].width;
    for (int64_t row = 0; row < grids[l].height; ++row)
      for (int64_t column = 0; column < grids[l].width; ++column)
        for (const auto& box : around) {
          const auto x = static_cast<float>(column * right), y = static_cast<float>(row * down);
          for (const float edge : {x + box[0], y + box[1], x + box[2], y + box[3]}) *out++ = edge;
        }
  }
  return anchors;
}

}  // namespace frugal::models
