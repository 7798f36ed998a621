// The weight of the adjoint convolution, written straight into the tiles that fast kernels read.
#pragma once
#include <cstdint>

namespace frugal::ops {

// A tiled f32 weight of k output and c input channels, k innermost: element (k, c, r, s) sits at
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

// weight [c, r, s, k], of a convolution from k to c channels -> the tiles of its adjoint's:
// channels swapped, window turned by half a circle.
void pack_adjoint_weight(const WeightTiles& tiles, const float* weight, float* tiled);

}  // namespace frugal::ops
