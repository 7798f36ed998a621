// Hot loops over f32 or bf16, which is computed in f32, compiled once per instruction set
// (baseline, SSE4, AVX2, AVX-512; NEON on Arm) and chosen at run time through Highway. They take
// plain pointers; the .cpp files of the ops check arguments and split the work. The result of an
// element does not depend on its place in a vector: all instruction sets use the same fused
// products.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace frugal::ops::simd {

// What a loop reads. All operands of a call that are written as Input or Output have one dtype.
struct Input {
  const void* data = nullptr;
  bool bf16 = false;
  Input() = default;
  Input(const float* values) : data(values) {}                 // NOLINT: meant to be implicit
  Input(const BFloat16* values) : data(values), bf16(true) {}  // NOLINT: meant to be implicit
};
// The elements of x, f32 or bf16, from this one on. Nothing for an undefined x.
Input input_of(const Tensor& x, int64_t element);

// Where a loop writes. `stream`: writes past the caches, which saves reading the lines first.
// REQUIRES: the conditions of output_of().
struct Output {
  void* data = nullptr;
  bool bf16 = false;
  bool stream = false;
  Output from(int64_t element) const {
    return {static_cast<char*>(data) + element * (bf16 ? 2 : 4), bf16, stream};
  }
};
// Chooses `stream` for f32 tensors that are too large for the next op to find in a cache and whose
// rows of `cols` elements are whole cache lines. Nothing for an undefined y.
Output output_of(const Tensor& y, int64_t cols);

// ---- Masks over blocks of 8 rows of `cols` elements, `stride` apart. mask [count, cols]: bit r of
// byte [b, k] is for row 8 b + r, column k (see ops/dense/bitmask.h).
struct Blocks {
  int64_t count, stride, cols;
};
// y = x where x is not <= 0, else slope * x (0 for slope 0). A bit of the mask is set where y = x;
// a null mask is not written.
void rectify_blocks(Input x, float slope, Output y, uint8_t* mask, Blocks blocks);
// y = x where lo <= x <= hi or x is NaN, else the nearer bound. A bit of the mask is set where y =
// x; a null mask is not written.
void clamp_blocks(Input x, float lo, float hi, Output y, uint8_t* mask, Blocks blocks);
// y = x where the mask is set, else slope * x (0 for slope 0).
void select_blocks(Input x, const uint8_t* mask, float slope, Output y, Blocks blocks);

// ---- Batch norm over rows [rows, c].
// Shifted sums of a chunk: the sum and the sum of squares of x - x[0], both [c].
void chunk_moments(Input x, int64_t rows, int64_t c, float* sum, float* squares);

struct Affine {
  const float *mean, *scale, *bias;  // [c]: z = (x - mean) * scale + bias
};
// y = z [+ residual]; with relu y = 0 where that is <= 0. `mask`, unless null: written, with bits
// set where relu kept the value; then REQUIRES relu and rows % 8 == 0.
void normalize(Input x, Input residual, const Affine& affine, bool relu, Output y, uint8_t* mask,
               int64_t rows, int64_t c);
// y = z where the mask is set, else 0. REQUIRES: rows % 8 == 0.
void normalize_by_mask(Input x, Input residual, const Affine& affine, const uint8_t* mask, Output y,
                       int64_t rows, int64_t c);
// g = dy where the mask is set (everywhere without a mask); g is written unless its data is null.
// Gives the sums over the chunk of g and of g * (x - mean), both [c]. REQUIRES: rows % 8 == 0 with
// a mask.
void chunk_gradients(Input dy, const uint8_t* mask, Input x, const float* mean, Output g,
                     float* sum, float* product, int64_t rows, int64_t c);

struct GradientAffine {
  const float *mean, *of_g, *of_x, *constant;  // [c]: dx = g * of_g + (x - mean) * of_x + constant
};
// g = dy where the mask is set (everywhere without a mask). REQUIRES: rows % 8 == 0 with a mask.
void input_gradient(Input dy, const uint8_t* mask, Input x, const GradientAffine& affine, Output dx,
                    int64_t rows, int64_t c);

}  // namespace frugal::ops::simd
