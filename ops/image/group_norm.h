// Group norm: x [N, ..., C]. The statistics are those of one sample and one group of channels. f32,
// bf16 and f64, which CUDA has not. Beside a bf16 x, everything except y and dx is f32. Ref: Wu &
// He 2018, equations 1 to 5.
#pragma once
#include "ops/sequence/layer_norm.h"

namespace frugal::ops {

// y = weight (x - mean) invstd + bias; weight and bias [C] or undefined; moments [N, groups].
// Errors: fewer than two axes, no channel, groups that do not divide C, weight or bias of another
// shape.
LayerNormOutput group_norm(const Tensor& x, int64_t groups, const Tensor& weight,
                           const Tensor& bias, double eps);
// Computes y again from saved moments. Linear in x; the bits are equal for the same x.
// `overwrite`: y is written over x, which is contiguous.
Tensor group_norm_apply(const Tensor& x, const RowMoments& moments, const Tensor& weight,
                        const Tensor& bias, bool overwrite = false);
LayerNormGradients group_norm_backward(const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                       const Tensor& weight, const LayerNormWants& wants);

// REQUIRES: all tensors are contiguous. `given`: the moments are inputs, else they are computed.
void group_norm_kernel(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out);
void group_norm_kernel(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out);
void group_norm_backward_kernel(Cpu, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out);
void group_norm_backward_kernel(Cuda, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out);

}  // namespace frugal::ops
