// Gathers rows by index, and reduces rows that have equal index. The index may be in any order. x
// [E, F], index [E] i64 in [0, rows); f32 and f64. Sums are taken in the order of e, so they have
// the same bits for every number of threads. Kernels take contiguous tensors.
#pragma once
#include "ops/graph/graph.h"

namespace frugal::ops {

// y[e] = x[index[e]]: x [V, F] -> [E, F].  Errors: an index outside [0, V) (CUDA does not wait to
// check this; the row is NaN); an index that is not [E] i64 on the device of x.
Tensor gather_rows(const Tensor& x, const Tensor& index);
void gather_rows_kernel(Cpu, const Tensor& x, const Tensor& index, const Tensor& y);
void gather_rows_kernel(Cuda, const Tensor& x, const Tensor& index, const Tensor& y);

// y[r] = sum or mean of x[e] over all e with index[e] = r: [rows, F]. A row without elements is 0.
// Errors: an index outside [0, rows); an index of another length.
Tensor segment_sum(const Tensor& x, const Tensor& index, int64_t rows);
Tensor segment_mean(const Tensor& x, const Tensor& index, int64_t rows);
// dy [rows, F] -> dx [E, F].
Tensor segment_mean_backward(const Tensor& dy, const Tensor& index);
void segment_mean_backward_kernel(Cpu, const Tensor& dy, const Tensor& index, const Tensor& dx);
void segment_mean_backward_kernel(Cuda, const Tensor& dy, const Tensor& index, const Tensor& dx);

// y[r] = max of x[e] over all e with index[e] = r. NaN is larger than everything. `element` [rows,
// F] i32 is the first e that has the maximum. A row without elements has y = 0 and element = -1.
struct SegmentMax {
  Tensor y, element;
};
SegmentMax segment_max(const Tensor& x, const Tensor& index, int64_t rows);
// entry [rows, F], u8 or i32: which entry of its row was the maximum -> element: which element that
// was.
void segment_elements_kernel(Cpu, const Csr& groups, const Tensor& entry, const Tensor& element);
void segment_elements_kernel(Cuda, const Csr& groups, const Tensor& entry, const Tensor& element);
Tensor segment_max_backward(const Tensor& dy, const Tensor& element, int64_t elements);  // [E, F]
void segment_max_backward_kernel(Cpu, const Tensor& dy, const Tensor& element, const Tensor& dx);
void segment_max_backward_kernel(Cuda, const Tensor& dy, const Tensor& element, const Tensor& dx);

// y[e, f] = exp(x[e, f]) / sum of exp(x[e', f]) over all e' with index[e'] = index[e].
// A segment that holds NaN or +inf, or only -inf, becomes NaN in all its elements, as in softmax.
Tensor segment_softmax(const Tensor& x, const Tensor& index, int64_t rows);
// y[e] = exp(x[e] - largest[index[e]]), then y[e] /= total[index[e]].
void segment_exp_kernel(Cpu, const Tensor& x, const Tensor& largest, const Tensor& index,
                        const Tensor& y);
void segment_exp_kernel(Cuda, const Tensor& x, const Tensor& largest, const Tensor& index,
                        const Tensor& y);
void segment_divide_kernel(Cpu, const Tensor& y, const Tensor& total, const Tensor& index);
void segment_divide_kernel(Cuda, const Tensor& y, const Tensor& total, const Tensor& index);
// dx = y (dy - the sum of y dy over the segment).
Tensor segment_softmax_backward(const Tensor& dy, const Tensor& y, const Tensor& index,
                                int64_t rows);
// dx[e] -= y[e] total[index[e]]. On entry dx holds dy y.
void segment_softmax_backward_kernel(Cpu, const Tensor& dx, const Tensor& y, const Tensor& total,
                                     const Tensor& index);
void segment_softmax_backward_kernel(Cuda, const Tensor& dx, const Tensor& y, const Tensor& total,
                                     const Tensor& index);

}  // namespace frugal::ops
