// Normalisation of the rows of x [..., C] over the last axis: layer norm (Ba et al. 2016, equation
// 4) and RMS norm (Zhang & Sennrich 2019, equation 4). f32 (SIMD) and f64 (plain loops); on CUDA
// f32 and bf16. Beside a bf16 x, everything except y and dx is f32.
#pragma once
#include "core/tensor.h"

namespace frugal::ops {

// The mean and 1 / sqrt(variance + eps) of every row, [...]. For RMS norm there is no mean, and
// invstd is 1 / sqrt(mean square + eps).
//
// Rows that are normalized already have the mean 0 and the invstd 1. `scale` is then the invstd of
// the rows before, by which dx is multiplied. Undefined: dx is multiplied by `invstd`.
//
// gain [C]: what dy of an element is multiplied by where it makes dx of this element. Undefined: 1.
// Codes of variance v in rows of n elements have the gain 1 + v / n: dx holds the product of an
// element with itself, -dy x^ x^ / n, and noise adds v to x^ x^ on average.
struct RowMoments {
  Tensor mean, invstd, scale = {}, gain = {};
};
// The moments of normalized rows. scale: the invstd of the rows before. `centred`: was a mean taken
// away?
RowMoments normalized_moments(const Tensor& scale, bool centred);
struct LayerNormOutput {
  Tensor y;
  RowMoments moments;
};

// y = weight (x - mean) invstd + bias; weight and bias [C] or undefined: ones, zeros.
// Errors: no axis, or one of extent 0; weight or bias of another shape.
LayerNormOutput layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
LayerNormOutput rms_norm(const Tensor& x, const Tensor& weight, double eps);
// Computes y again from saved moments. Linear in x; the bits are equal for the same x.
// `overwrite`: y is written over x, which is contiguous.
Tensor layer_norm_apply(const Tensor& x, const RowMoments& moments, const Tensor& weight,
                        const Tensor& bias, bool overwrite = false);

// `overwrite`: dx is written over dy, which is contiguous. Gradients that are not wanted stay
// undefined.
struct LayerNormGradients {
  Tensor dx, dweight, dbias;
};
struct LayerNormWants {
  bool dx = true, dweight = true, dbias = true;
};
LayerNormGradients layer_norm_backward(const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                       const Tensor& weight, const LayerNormWants& wants,
                                       bool overwrite = false);

// REQUIRES: all tensors are contiguous. `given`: the moments are inputs, else they are computed.
void layer_norm_kernel(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out);
void layer_norm_kernel(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out);
void layer_norm_backward_kernel(Cpu, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out);
void layer_norm_backward_kernel(Cuda, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out);

}  // namespace frugal::ops
