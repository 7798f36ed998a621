// The f32 loops of attention over tiles that lie in the caches, compiled once per instruction set
// and chosen at run time (see ops/simd/simd_loops.h). Tiles are rows `stride` apart.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

constexpr int64_t kTileLanes = 16;  // extents n of products are multiples of this

// An operand whose element (i, j) lies at data[i * row + j * col].
struct Strided {
  const float* data;
  int64_t row, col;
};
// c [m, n] = a [m, k] b [k, n], added to c if `accumulate`. b's and c's columns lie together.
// REQUIRES: n % kTileLanes == 0.
void tile_product(Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                  int64_t m, int64_t n, int64_t k, bool accumulate);

struct Tile {
  float* data;
  int64_t stride, rows, cols;
};
// x += y; y's rows are y_stride apart, 0: one for all.
void tile_add(Tile x, const float* y, int64_t y_stride);
// Joins the tile to the softmax of the columns before: top, the largest so far, and total, the sum
// of e^(x - top), are updated; x becomes e^(x - top); rescale is what earlier terms shrink by.
void tile_online_softmax(Tile x, float* top, float* total, float* rescale);
// x becomes the softmax of each row, 0 where all are hidden; delta: the row's <x, dp>, of x's
// stride.
void tile_softmax(Tile x, const float* dp, float* delta);
// x = e^(x - shift) with a shift for each row.
void tile_exp(Tile x, const float* shift);
void tile_scale_rows(Tile x, const float* factor);
// x *= y, both of one stride.
void tile_multiply(Tile x, const float* y);
// dp = p (dp - delta) with a delta for each row; both of one stride.
void tile_softmax_gradient(Tile dp, const float* p, const float* delta);
// Of two rows of n elements.
float dot(const float* x, const float* y, int64_t n);
// x [rows, cols], rows `stride` apart, transposed to y [cols, y_stride].
void tile_transpose(const float* x, int64_t stride, int64_t rows, int64_t cols, float* y,
                    int64_t y_stride);

}  // namespace frugal::ops::simd
