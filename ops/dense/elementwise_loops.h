// The f32 loops of the elementwise ops, compiled once per instruction set and chosen at run time
// (see ops/simd/simd_loops.h).
#pragma once
#include "core/rng.h"
#include "ops/dense/functors.h"

namespace frugal::ops::simd {

// Where two operands of a [rows, cols] result lie. Strides are in elements; a stride of 0 repeats
// the operand. The result is contiguous.
struct Operands {
  int64_t rows, cols;
  int64_t a_row, a_col, b_row, b_col;
};
void binary(Binary op, const float* a, const float* b, float* y, const Operands& layout);

// In the functions below the output may be an input.
void unary(Unary op, const float* x, float* y, int64_t n);
// REQUIRES: `op` has a gradient.
void unary_backward(Unary op, const float* dy, const float* saved, float* dx, int64_t n);
void unary_estimate(Unary op, const float* x, const float* variance, float* y, int64_t n);
void unary_backward_estimate(Unary op, const float* dy, const float* x, const float* variance,
                             float* dx, int64_t n);
void affine(const float* x, float factor, float term, float* y, int64_t n);

// An element of the stream `key` is kept if its 24-bit word, the one of uniform(), is at least
// `bound`. Kept elements are multiplied by `scale`, the others become 0.
struct Drop {
  RngKey key;
  uint32_t bound;
  float scale;
};
Drop drop_of(double p, RngKey key);  // with probability p
// Elements [begin, end) of the stream. x and y point to element `begin` and may be equal.
void dropout(const float* x, const Drop& drop, float* y, int64_t begin, int64_t end);
// The factors alone: dropout of ones.
void dropout_factors(const Drop& drop, float* to, int64_t begin, int64_t end);

}  // namespace frugal::ops::simd
