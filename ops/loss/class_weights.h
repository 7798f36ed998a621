// The weights of rows whose classes have weights, for losses.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// target [...] i64, class_weights [C] f32 or f64 (on CUDA f32) -> [...] like class_weights: the
// weight of each target's class; 0 for ignore_index and for values outside [0, C), which a loss
// refuses itself. Errors: another dtype or device of the target; class_weights that are no vector.
Tensor weights_of_rows(const Tensor& target, const Tensor& class_weights, int64_t ignore_index);
void weights_of_rows_kernel(Cpu, const Tensor& target, const Tensor& class_weights,
                            int64_t ignore_index, const Tensor& y);
void weights_of_rows_kernel(Cuda, const Tensor& target, const Tensor& class_weights,
                            int64_t ignore_index, const Tensor& y);

}  // namespace frugal::ops
