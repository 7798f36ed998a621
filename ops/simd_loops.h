// Hot f32 loops compiled once per instruction set (baseline, AVX2, AVX-512; NEON on Arm) and chosen
// at run time through Highway. Plain pointers; the ops' .cpp check and split the work.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// ---- masks over whole 8-row blocks: x, y [8 * blocks, cols], mask [blocks, cols] (see
// ops/bitmask.h)
void rectify_blocks(const float* x, float slope, float* y, uint8_t* mask, int64_t blocks,
                    int64_t cols);
void select_blocks(const float* x, const uint8_t* mask, float slope, float* y, int64_t blocks,
                   int64_t cols);

// ---- batch norm over rows [rows, c]
// Shifted sums of a chunk: sum and sum of squares of x - x[0], both [c].
void chunk_moments(const float* x, int64_t rows, int64_t c, float* sum, float* squares);

struct Affine {
  const float *mean, *scale, *bias;  // [c]: z = (x - mean) * scale + bias
};
// y = z [+ residual]; with relu: y = 0 where it is <= 0. `mask`: written, where y was kept;
// REQUIRES rows % 8 == 0 then.
void normalize(const float* x, const float* residual, const Affine& affine, bool relu, float* y,
               uint8_t* mask, int64_t rows, int64_t c);
// y = z where the mask is set, else 0. REQUIRES: rows % 8 == 0.
void normalize_by_mask(const float* x, const Affine& affine, const uint8_t* mask, float* y,
                       int64_t rows, int64_t c);
// g = dy where the mask is set (everywhere without one), written unless null; sums over the chunk
// of g and g * (x - mean), both [c]. REQUIRES: rows % 8 == 0 with a mask.
void chunk_gradients(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                     float* g, float* sum, float* product, int64_t rows, int64_t c);

struct GradientAffine {
  const float *mean, *of_g, *of_x, *constant;  // [c]: dx = g * of_g + (x - mean) * of_x + constant
};
void input_gradient(const float* dy, const uint8_t* mask, const float* x,
                    const GradientAffine& affine, float* dx, int64_t rows, int64_t c);

}  // namespace frugal::ops::simd
