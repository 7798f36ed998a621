// The f32 loops of the elementwise ops, compiled once per instruction set and chosen at run time
// (see ops/simd_loops.h).
#pragma once
#include "core/rng.h"
#include "ops/functors.h"

namespace frugal::ops::simd {

// Where two operands of a [rows, cols] result lie: strides in elements, 0 where broadcast. The
// result is contiguous.
struct Operands {
  int64_t rows, cols;
  int64_t a_row, a_col, b_row, b_col;
};
void binary(Binary op, const float* a, const float* b, float* y, const Operands& layout);

void unary(Unary op, const float* x, float* y, int64_t n);
// REQUIRES: an op with a gradient.
void unary_backward(Unary op, const float* dy, const float* saved, float* dx, int64_t n);
void unary_estimate(Unary op, const float* x, const float* variance, float* y, int64_t n);
void unary_backward_estimate(Unary op, const float* dy, const float* x, const float* variance,
                             float* dx, int64_t n);
void affine(const float* x, float factor, float term, float* y, int64_t n);

// y = x * scale where the 24-bit word of uniform(key, i) is at least `bound`, else 0, for elements
// [begin, end) of the stream; x and y point to element begin.  REQUIRES: begin % 4 == 0.
void dropout(const float* x, RngKey key, uint32_t bound, float scale, float* y, int64_t begin,
             int64_t end);

}  // namespace frugal::ops::simd
