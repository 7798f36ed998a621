// Hot f32 loops compiled once per instruction set (baseline, SSE4, AVX2, AVX-512; NEON on Arm) and
// chosen at run time through Highway. Plain pointers; the ops' .cpp check and split the work.
// An element's result does not depend on its place in a vector: all use the same fused products.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// Where a loop writes. `stream`: past the caches, which saves reading the lines first; REQUIRES
// output_of()'s conditions.
struct Output {
  float* data = nullptr;
  bool stream = false;
  Output from(int64_t element) const { return {data + element, stream}; }
};
// Streams tensors too large to be found in a cache by the next op, in rows of whole cache lines.
Output output_of(float* data, int64_t elements, int64_t cols);

// ---- masks over blocks of 8 rows of `cols` elements, `stride` apart; mask [count, cols], bit r of
// byte [b, k] for row 8 b + r, column k (see ops/dense/bitmask.h)
struct Blocks {
  int64_t count, stride, cols;
};
// y = x where it is not <= 0, else slope * x (0 for slope 0). The mask says where, unless null.
void rectify_blocks(const float* x, float slope, Output y, uint8_t* mask, Blocks blocks);
// y = x where lo <= x <= hi or NaN, else the bound; the mask says where it was x, unless null.
void clamp_blocks(const float* x, float lo, float hi, Output y, uint8_t* mask, Blocks blocks);
// y = x where the mask is set, else slope * x (0 for slope 0).
void select_blocks(const float* x, const uint8_t* mask, float slope, Output y, Blocks blocks);

// ---- batch norm over rows [rows, c]
// Shifted sums of a chunk: sum and sum of squares of x - x[0], both [c].
void chunk_moments(const float* x, int64_t rows, int64_t c, float* sum, float* squares);

struct Affine {
  const float *mean, *scale, *bias;  // [c]: z = (x - mean) * scale + bias
};
// y = z [+ residual]; with relu: y = 0 where it is <= 0. `mask`: written, where y was kept;
// REQUIRES relu and rows % 8 == 0 then.
void normalize(const float* x, const float* residual, const Affine& affine, bool relu, Output y,
               uint8_t* mask, int64_t rows, int64_t c);
// y = z where the mask is set, else 0. REQUIRES: rows % 8 == 0.
void normalize_by_mask(const float* x, const float* residual, const Affine& affine,
                       const uint8_t* mask, Output y, int64_t rows, int64_t c);
// g = dy where the mask is set (everywhere without one), written unless its data is null; sums over
// the chunk of g and g * (x - mean), both [c]. REQUIRES: rows % 8 == 0 with a mask.
void chunk_gradients(const float* dy, const uint8_t* mask, const float* x, const float* mean,
                     Output g, float* sum, float* product, int64_t rows, int64_t c);

struct GradientAffine {
  const float *mean, *of_g, *of_x, *constant;  // [c]: dx = g * of_g + (x - mean) * of_x + constant
};
// g = dy where the mask is set (everywhere without one). REQUIRES: rows % 8 == 0 with a mask.
void input_gradient(const float* dy, const uint8_t* mask, const float* x,
                    const GradientAffine& affine, Output dx, int64_t rows, int64_t c);

}  // namespace frugal::ops::simd
