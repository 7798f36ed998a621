#include "ops/dense/weight_tiles.h"
#include "ops/shared_kernels.h"

#include <algorithm>

#include "core/parallel.h"

namespace frugal::ops {

void pack_adjoint_weight(const WeightTiles& t, const float* weight, float* tiled) {
  const int64_t window = t.r * t.s, tiles_k = (t.k + t.tile_k - 1) / t.tile_k;
  if (t.numel != t.k * t.c * window) std::fill_n(tiled, t.numel, 0.0f);
  parallel_for(0, tiles_k * window, rows_at_once(kArithmeticGrain, t.tile_k * t.c),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t k = task / window * t.tile_k, cell = task % window;
                   const int64_t width = std::min(t.tile_k, t.k - k);
                   const float* from = weight + (window - 1 - cell) * t.k + k;
                   float* to = tiled + k / t.tile_k * t.stride_k + cell / t.s * t.stride_r +
                               cell % t.s * t.stride_s;
                   for (int64_t c = 0; c < t.c; ++c)
                     std::copy_n(from + c * window * t.k, width,
                                 to + c / t.tile_c * t.stride_c + c % t.tile_c * t.inner_c);
                 }
               });
}

}  // namespace frugal::ops
