// The f32 loops of layer norm and RMS norm, compiled once per instruction set and chosen at run
// time (see ops/simd/simd_loops.h).
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// Rows [rows, width]. `mean` is null for RMS norm. `weight` is null if it is all ones, `bias` if it
// is all zeros.
struct RowNorm {
  const float *weight, *bias;
  float *mean, *invstd;  // one for each row
  int64_t rows, width;
  const float* scale;  // for each row, what dx is multiplied by; null: invstd
  const float* gain;   // for each column, RowMoments::gain; null: 1
};
// Computes mean, invstd and y.
void normalize_rows(const float* x, const RowNorm& norm, double eps, float* y);
// Computes y from given mean and invstd. The bits are equal for the same x.
void apply_row_norm(const float* x, const RowNorm& norm, float* y);
// Writes dx, which may be dy, unless it is null. Adds to dweight and dbias, [width]; either both or
// none of them are null.
void row_norm_gradients(const float* dy, const float* x, const RowNorm& norm, float* dx,
                        float* dweight, float* dbias);

}  // namespace frugal::ops::simd
