// The f32 product of one row with a matrix, compiled once per instruction set and chosen at run
// time (see ops/simd/simd_loops.h). Internal.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// to[i] = <x, w_i> + bias[i], or without bias if that is null, for rows w_i of w [rows, n]. The
// matrix is read once, from its beginning to its end, so this is as fast as the memory. The bits
// do not depend on how rows are shared among calls.
void row_products(const float* x, const float* w, const float* bias, int64_t rows, int64_t n,
                  float* to);

}  // namespace frugal::ops::simd
