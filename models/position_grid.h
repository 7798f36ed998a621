// Learned positions of tokens that lie on a square grid, for a grid of another size: weights of a
// vision transformer for pictures of another size.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor.h"

namespace frugal::models {

// How a value of the new grid is found between those of the old one: always by a cubic
// convolution.  Ref: Keys 1981; what PyTorch's interpolate() calls "bicubic".
enum class GridSampling : uint8_t {
  corners,  // corners meet corners, a = -0.75: torchvision's interpolate_embeddings()
  centres,  // cells cover equal shares of the side, a = -0.75: DeiT, Hugging Face, Swin
  // Cells cover equal shares of the side, a = -0.5, and a smaller grid is an average: timm's
  // resample_abs_pos_embed().
  smooth,
};

// [from^2, C] -> [to^2, C], both row by row. f32, or f64 for f64; on `meta` without values.
// Errors: rows that are no square; to < 1.
Tensor resample_grid(const Tensor& rows, int64_t to, GridSampling sampling);

// The tensor of this name with its grid resized to fit `target`: `*encoder.pos_embedding`
// [1, 1 + side^2, C], of which the class token's row stays as it is, or
// `*relative_position_bias_table` [side^2, heads], always by their centres. Nothing: it is neither,
// or it differs from `target` in more than the side of a square grid.
struct GridPositions {
  Tensor tensor;
  int64_t from = 0, to = 0;  // sides
};
std::optional<GridPositions> positions_on_grid(const std::string& name, const Tensor& tensor,
                                               const Shape& target, GridSampling sampling);

// The side of a grid of so many cells; 0: it is no square.
int64_t grid_side(int64_t cells);

}  // namespace frugal::models
