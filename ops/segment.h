// Rows by index, and reductions over the rows of equal index, in any order of the index.
// x [E, F], index [E] i64 in [0, rows); f32 and f64. Sums are taken in the order of e, with the
// same bits for every number of threads.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// y[e] = x[index[e]]: x [V, F] -> [E, F].  Errors: an index outside [0, V); not [E] i64.
Tensor gather_rows(const Tensor& x, const Tensor& index);
void gather_rows_kernel(Cpu, const Tensor& x, const Tensor& index, const Tensor& y);
void gather_rows_kernel(Cuda, const Tensor& x, const Tensor& index, const Tensor& y);

// y[r] = sum or mean of x[e] over index[e] = r: [rows, F]; 0 for rows without any.
// Errors: an index outside [0, rows); an index of another length.
Tensor segment_sum(const Tensor& x, const Tensor& index, int64_t rows);
Tensor segment_mean(const Tensor& x, const Tensor& index, int64_t rows);
// dy [rows, F] -> dx [E, F].
Tensor segment_mean_backward(const Tensor& dy, const Tensor& index);

// y[r] = max of x[e] over index[e] = r, with NaN above everything, and the first e that has it:
// `element` [rows, F] i32; 0 and -1 for rows without any.
struct SegmentMax {
  Tensor y, element;
};
SegmentMax segment_max(const Tensor& x, const Tensor& index, int64_t rows);
Tensor segment_max_backward(const Tensor& dy, const Tensor& element, int64_t elements);  // [E, F]
void segment_max_backward_kernel(Cpu, const Tensor& dy, const Tensor& element, const Tensor& dx);
void segment_max_backward_kernel(Cuda, const Tensor& dy, const Tensor& element, const Tensor& dx);

// y[e, f] = exp(x[e, f]) / sum of exp(x[e', f]) over index[e'] = index[e].
// A segment with NaN or +inf, or of -inf only, gives NaN throughout, as softmax.
Tensor segment_softmax(const Tensor& x, const Tensor& index, int64_t rows);
// y (dy - sum of y dy over the segment).
Tensor segment_softmax_backward(const Tensor& dy, const Tensor& y, const Tensor& index,
                                int64_t rows);

}  // namespace frugal::ops
