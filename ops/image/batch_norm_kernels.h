// The kernels behind ops/image/batch_norm.h. x, y, dy, dx, residual, g: contiguous [rows, C].
// Statistics and sums: [C] f64. affine and partial: the dtype of x, f32 for bf16. A mask has the
// by-rows layout; masks of the other layout are applied by ops/dense/bitmask.h before or after.
#pragma once
#include "ops/image/batch_norm.h"

namespace frugal::ops {

void moments_kernel(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance);
// The two steps of it in f32. Shifted sums of each chunk of these rows, which begin at row `first`
// of the whole, go to `partial` [chunks of the whole, 3, C]: the sums of x - x0 and of its square,
// and x0, the first row of the chunk. `first` is a multiple of chunk_rows(). combine: of `rows`
// rows.
void moment_sums_kernel(Cpu, const Tensor& x, int64_t first, const Tensor& partial);
void combine_moments_kernel(Cpu, const Tensor& partial, int64_t rows, const Tensor& mean,
                            const Tensor& variance);
void normalize_kernel(Cpu, const Tensor& x, const Tensor& residual, const Tensor& affine, bool relu,
                      const Tensor& y, const Tensor& mask);
void normalize_by_mask_kernel(Cpu, const Tensor& x, const Tensor& residual, const Tensor& affine,
                              const Tensor& mask, const Tensor& y);
// The number of rows that a chunk of gradient_sums_kernel() takes. It depends only on C and the
// kind of device.
int64_t chunk_rows(Device device, int64_t c);
// Sums of g = masked dy and of g * (x - mean) over these rows, which begin at row `first` of the
// whole. g is written if it is defined, and may be dy. f32: the sums of each chunk go to `partial`
// [chunks of the whole, 2, C], and `first` is a multiple of chunk_rows(). f64: they are added to
// `sums` [2, C].
void gradient_sums_kernel(Cpu, const Tensor& dy, const Tensor& mask, const Tensor& x,
                          const Tensor& affine, const Tensor& g, int64_t first,
                          const Tensor& partial, const Tensor& sums);
// sums [2, C] f64 += partial over its chunks, in order.
void combine_sums_kernel(Cpu, const Tensor& partial, const Tensor& sums);
// affine [4, C]: mean, of_g, of_x, constant. dx may be dy.
void input_gradient_kernel(Cpu, const Tensor& dy, const Tensor& mask, const Tensor& x,
                           const Tensor& affine, const Tensor& dx);

// The small steps for each channel between the passes.
// Moments from mean and variance [C] f64. Running statistics, if defined, move by `momentum`.
void finish_moments_kernel(Cpu, const Tensor& mean, const Tensor& variance, int64_t rows,
                           const BatchNormOptions& options, const BatchNormMoments& moments,
                           const Tensor& running_mean, const Tensor& running_var);
void running_moments_kernel(Cpu, const Tensor& running_mean, const Tensor& running_var, double eps,
                            const BatchNormMoments& moments);
// affine [3, C]: mean, weight * invstd, bias.
void fold_kernel(Cpu, const BatchNormMoments& moments, const BatchNormParameters& parameters,
                 const Tensor& affine);
// Turns the sums into affine [4, C] for input_gradient_kernel(), and dweight and dbias [C].
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
