// The f32 loops of softmax and cross-entropy over rows [rows, width], compiled once per instruction
// set and chosen at run time (see ops/simd/simd_loops.h). The result of a row does not depend on
// other rows.
#pragma once
#include <cstdint>

namespace frugal::ops::simd {

// y = e^(x - m) / sum e^(x - m), or with `log` y = x - m - log(sum e^(x - m)). m is the maximum of
// the row.
void softmax_rows(const float* x, float* y, int64_t rows, int64_t width, bool log);

// dx = y (dy - <dy, y>), or with `log` dy - e^y sum(dy).
void softmax_backward_rows(const float* dy, const float* y, float* dx, int64_t rows, int64_t width,
                           bool log);

// lse = log(sum e^x), top = the first position of the maximum; both [rows].
void log_sum_exp_rows(const float* x, float* lse, int64_t* top, int64_t rows, int64_t width);

// y = factor * (e^(x - shift) - term) over one row.
void shifted_exp_row(const float* x, float shift, float factor, float term, float* y,
                     int64_t width);

}  // namespace frugal::ops::simd
