// Anchors: the boxes from which a detection network reckons. f32 on the host.
// Ref: torchvision's AnchorGenerator; Ren et al. 2015.
#pragma once
#include <vector>

#include "core/tensor.h"

namespace frugal::models {

// The anchors of one level, at each of its pixels: every ratio (of height to width) with every
// side. A side is that of the square with the area of the anchor.
struct AnchorLevel {
  std::vector<double> sides;
  std::vector<double> ratios = {0.5, 1, 2};
  int64_t each() const { return static_cast<int64_t>(sides.size() * ratios.size()); }
};

// Three sides for each of `levels` levels: side, side 2^(1/3) and side 2^(2/3), cut to whole
// pixels, with `side` doubled from level to level.  Ref: Lin et al. 2017, section 4.
std::vector<AnchorLevel> three_sides(int64_t side, int64_t levels);
// One side for each level, doubled from level to level.  Ref: Lin et al. 2017 (FPN), section 4.1.
std::vector<AnchorLevel> one_side(int64_t side, int64_t levels);

struct GridSize {
  int64_t height = 0, width = 0;
};

// [A, 4], level after level, then by rows, columns, ratios and sides. A pixel of a grid stands for
// height / grid.height rows of the picture, rounded down. Corners around the origin are rounded to
// whole pixels, halves to even ones.
// Errors: another number of grids than of levels; a grid that is empty or larger than the picture.
Tensor make_anchors(const std::vector<AnchorLevel>& levels, const std::vector<GridSize>& grids,
                    int64_t height, int64_t width);

}  // namespace frugal::models
