// The f32 loops of layer norm and RMS norm, compiled once per instruction set and chosen at run
// time (see ops/simd/simd_loops.h).
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// Rows [rows, width]. `mean` is null for RMS norm, weight and bias where they are ones and zeros.
struct RowNorm {
  const float *weight, *bias;
  float *mean, *invstd;  // one a row
  int64_t rows, width;
};
// Writes mean and invstd, and y.
void normalize_rows(const float* x, const RowNorm& norm, double eps, float* y);
// Takes them as they are: the same y for the same x.
void apply_row_norm(const float* x, const RowNorm& norm, float* y);
// dx (may be dy) unless null; adds to dweight and dbias, [width], both or neither null.
void row_norm_gradients(const float* dy, const float* x, const RowNorm& norm, float* dx,
                        float* dweight, float* dbias);

}  // namespace frugal::ops::simd
