// The f32 loops of attention over tiles that fit the caches, compiled once per instruction set and
// chosen at run time (see ops/simd/simd_loops.h). The rows of a tile lie `stride` apart.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

constexpr int64_t kTileLanes = 16;  // the extents n of products are multiples of this

// An operand whose element (i, j) lies at data[i * row + j * col].
struct Strided {
  const float* data;
  int64_t row, col;
};
// c [m, n] = a [m, k] b [k, n]; with `accumulate` the product is added to c. The elements of a row
// of b and of c are neighbours.
// REQUIRES: n % kTileLanes == 0.
void tile_product(Strided a, const float* b, int64_t b_stride, float* c, int64_t c_stride,
                  int64_t m, int64_t n, int64_t k, bool accumulate);

struct Tile {
  float* data;
  int64_t stride, rows, cols;
};
// x += y. The rows of y lie y_stride apart; with 0 all rows use one.
void tile_add(Tile x, const float* y, int64_t y_stride);
// x becomes cap tanh(x / cap). slopes: 1 - tanh(x / cap)^2, with the stride of x; null: not wanted.
void tile_soft_cap(Tile x, float cap, float* slopes);
// Adds the tile to the running softmax of earlier columns. `top` is the largest score so far and
// `total` the sum of e^(x - top); both are updated. x becomes e^(x - top). `rescale` is the factor
// by which earlier terms shrink.
void tile_online_softmax(Tile x, float* top, float* total, float* rescale);
// x becomes the softmax of each row, or 0 where the whole row is hidden. delta: <x, dp> of each
// row; dp has the stride of x.
void tile_softmax(Tile x, const float* dp, float* delta);
// x = e^(x - shift), with one shift for each row.
void tile_exp(Tile x, const float* shift);
void tile_scale_rows(Tile x, const float* factor);
// x *= y. Both have the same stride.
void tile_multiply(Tile x, const float* y);
// dp = p (dp - delta), with one delta for each row. Both have the same stride.
void tile_softmax_gradient(Tile dp, const float* p, const float* delta);
// The dot product of two rows of n elements.
float dot(const float* x, const float* y, int64_t n);
// y [cols, y_stride] becomes the transpose of x [rows, cols], whose rows lie `stride` apart.
void tile_transpose(const float* x, int64_t stride, int64_t rows, int64_t cols, float* y,
                    int64_t y_stride);

}  // namespace frugal::ops::simd
