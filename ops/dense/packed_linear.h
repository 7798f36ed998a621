// Products of activations with a weight in few bits (ops/dense/packed_matrix.h). A tile of the
// weight at a time is unpacked, multiplied and freed: at most kTileBytes, but at least 64 rows or
// columns. One row of f32 on the CPU takes one row of the weight at a time, in each thread, so the
// packed weight is read once, at the speed of the memory. f32 and f64 on the CPU, f32 and bf16 on
// CUDA.
#pragma once
#include "core/tensor.h"
#include "ops/dense/packed_matrix.h"

namespace frugal::ops {

inline constexpr int64_t kTileBytes = int64_t{4} << 20;

// x [..., I], weight [O, I], bias [O] or undefined -> x weight^T + bias, [..., O].
// Errors: extents that differ; a weight on another device.
Tensor packed_linear(const Tensor& x, const PackedMatrix& weight, const Tensor& bias);
Tensor packed_linear_backward_input(const Tensor& dy, const PackedMatrix& weight);  // [..., I]

}  // namespace frugal::ops
