// The kernels behind ops/image/batch_norm.h. x, y, dy, dx, residual, g: contiguous [rows, C];
// statistics and sums: [C] f64; affine and partial: of x's dtype, f32 for bf16. A mask is of the
// by-rows layout; other masks are applied by ops/dense/bitmask.h before or after.
#pragma once
#include "ops/image/batch_norm.h"

namespace frugal::ops {

void moments_kernel(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance);
void normalize_kernel(Cpu, const Tensor& x, const Tensor& residual, const Tensor& affine, bool relu,
                      const Tensor& y, const Tensor& mask);
void normalize_by_mask_kernel(Cpu, const Tensor& x, const Tensor& residual, const Tensor& affine,
                              const Tensor& mask, const Tensor& y);
// Rows that a chunk of gradient_sums_kernel takes: a function of C and the kind of device alone.
int64_t chunk_rows(Device device, int64_t c);
// Sums of g = masked dy and of g * (x - mean), for the rows from `first` of the whole; g is written
// where defined, and may be dy. f32: to `partial` [chunks of the whole, 2, C], `first` a multiple
// of chunk_rows; f64: added to `sums` [2, C].
void gradient_sums_kernel(Cpu, const Tensor& dy, const Tensor& mask, const Tensor& x,
                          const Tensor& affine, const Tensor& g, int64_t first,
                          const Tensor& partial, const Tensor& sums);
// sums [2, C] f64 += partial over its chunks, in order.
void combine_sums_kernel(Cpu, const Tensor& partial, const Tensor& sums);
// affine [4, C]: mean, of_g, of_x, constant. dx may be dy.
void input_gradient_kernel(Cpu, const Tensor& dy, const Tensor& mask, const Tensor& x,
                           const Tensor& affine, const Tensor& dx);

// The small per-channel steps between the passes.
// Moments from mean and variance [C] f64; running statistics, where defined, move by
// `momentum`.
void finish_moments_kernel(Cpu, const Tensor& mean, const Tensor& variance, int64_t rows,
                           const BatchNormOptions& options, const BatchNormMoments& moments,
                           const Tensor& running_mean, const Tensor& running_var);
void running_moments_kernel(Cpu, const Tensor& running_mean, const Tensor& running_var, double eps,
                            const BatchNormMoments& moments);
// affine [3, C]: mean, weight * invstd, bias.
void fold_kernel(Cpu, const BatchNormMoments& moments, const BatchNormParameters& parameters,
                 const Tensor& affine);
// From the sums: affine [4, C] for input_gradient_kernel, dweight and dbias [C].
void fold_gradient_kernel(Cpu, const Tensor& sums, int64_t rows, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, bool training,
                          const Tensor& affine, const Tensor& dweight, const Tensor& dbias);

void moments_kernel(Cuda, const Tensor& x, const Tensor& mean, const Tensor& variance);
void normalize_kernel(Cuda, const Tensor& x, const Tensor& residual, const Tensor& affine,
                      bool relu, const Tensor& y, const Tensor& mask);
void normalize_by_mask_kernel(Cuda, const Tensor& x, const Tensor& residual, const Tensor& affine,
                              const Tensor& mask, const Tensor& y);
void gradient_sums_kernel(Cuda, const Tensor& dy, const Tensor& mask, const Tensor& x,
                          const Tensor& affine, const Tensor& g, int64_t first,
                          const Tensor& partial, const Tensor& sums);
void combine_sums_kernel(Cuda, const Tensor& partial, const Tensor& sums);
void input_gradient_kernel(Cuda, const Tensor& dy, const Tensor& mask, const Tensor& x,
                           const Tensor& affine, const Tensor& dx);
void finish_moments_kernel(Cuda, const Tensor& mean, const Tensor& variance, int64_t rows,
                           const BatchNormOptions& options, const BatchNormMoments& moments,
                           const Tensor& running_mean, const Tensor& running_var);
void running_moments_kernel(Cuda, const Tensor& running_mean, const Tensor& running_var, double eps,
                            const BatchNormMoments& moments);
void fold_kernel(Cuda, const BatchNormMoments& moments, const BatchNormParameters& parameters,
                 const Tensor& affine);
void fold_gradient_kernel(Cuda, const Tensor& sums, int64_t rows, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, bool training,
                          const Tensor& affine, const Tensor& dweight, const Tensor& dbias);

}  // namespace frugal::ops
