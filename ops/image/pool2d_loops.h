// The hot loops of max pooling over f32 and bf16, compiled once per instruction set and chosen at
// run time.
#pragma once
#include <cstdint>

#include "core/dtype.h"
#include "ops/options.h"

namespace frugal::ops::simd {

// One image's extents, NHWC; the window has at most 256 cells.
struct PoolImage {
  int64_t h, w, out_h, out_w, c;
  Pool2dOptions options;
};

// Row `oh` of the output: x [h, w, c] -> y, index [out_w, c].
void max_pool_row(const PoolImage& image, const float* x, int64_t oh, float* y, uint8_t* index);
void max_pool_row(const PoolImage& image, const BFloat16* x, int64_t oh, BFloat16* y,
                  uint8_t* index);

// Row `h` of the input's gradient: dy, index [out_h, out_w, c] -> dx [w, c].
void max_pool_backward_row(const PoolImage& image, const float* dy, const uint8_t* index, int64_t h,
                           float* dx);
void max_pool_backward_row(const PoolImage& image, const BFloat16* dy, const uint8_t* index,
                           int64_t h, float* dx);

}  // namespace frugal::ops::simd
