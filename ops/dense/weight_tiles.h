// Writes the weight of the adjoint convolution directly into the tiles that fast kernels read.
#pragma once
#include <cstdint>

namespace frugal::ops {

// The layout of a tiled f32 weight of k output and c input channels, with k innermost. Element (k,
// c, r, s) lies at
//   k / tile_k * stride_k + c / tile_c * stride_c + r * stride_r + s * stride_s
//     + k % tile_k + c % tile_c * inner_c.
// Channels are padded with zeros to whole tiles; `numel` counts the padding.
struct WeightTiles {
  int64_t k = 0, c = 0, r = 0, s = 0;
  int64_t tile_k = 1, tile_c = 1;
  int64_t stride_k = 0, stride_c = 0, stride_r = 0, stride_s = 0;
  int64_t inner_c = 0;
  int64_t numel = 0;
};

// weight [c, r, s, k] of a convolution from k to c channels -> the tiles of the adjoint's weight:
// channels are swapped and the window is rotated by 180 degrees.
void pack_adjoint_weight(const WeightTiles& tiles, const float* weight, float* tiled);

}  // namespace frugal::ops
