// Batch normalisation over all rows of x [..., C], alone or fused with relu, or with a residual and
// relu. f32 (SIMD, one pass for the statistics and one for the rest) and f64 (plain loops); on
// CUDA f32 and bf16. Beside a bf16 x, all [C] are f32. Ref: Ioffe & Szegedy 2015.
#pragma once
#include <functional>

#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct BatchNormParameters {
  Tensor weight, bias;  // [C]; undefined: ones, zeros
};

// mean and 1/sqrt(var + eps), both [C]. In training from x, with the biased variance.
struct BatchNormMoments {
  Tensor mean, invstd;
};
// Training: also updates running_mean and running_var [C] in place unless undefined: new = (1 -
// momentum) old + momentum batch, with the unbiased variance; their versions are bumped. Errors:
// fewer than two rows.
BatchNormMoments batch_norm_moments(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const BatchNormOptions& options);
BatchNormMoments batch_norm_running(const Tensor& running_mean, const Tensor& running_var,
                                    double eps);

// z = weight (x - mean) invstd + bias [+ residual]; y = z, or with relu z where it is not <= 0,
// else 0. The mask (ops/dense/bitmask.h) says where y was kept; undefined unless asked for.
// `over_residual`: y takes the place of the residual, contiguous, whose version stays.
struct BatchNormOutput {
  Tensor y, mask;
};
BatchNormOutput batch_norm_apply(const Tensor& x, const BatchNormMoments& moments,
                                 const BatchNormParameters& parameters, const Tensor& residual,
                                 bool relu, bool want_mask, bool over_residual = false);
// [3, C], f32 or f64: z = (x - affine[0]) affine[1] + affine[2] without a residual.
Tensor batch_norm_affine(const BatchNormMoments& moments, const BatchNormParameters& parameters);
// The same, with what batch_norm_apply checks, and batch_norm_apply with it.
Tensor batch_norm_affine(const Tensor& x, const BatchNormMoments& moments,
                         const BatchNormParameters& parameters, const Tensor& residual);
BatchNormOutput batch_norm_apply(const Tensor& x, const Tensor& affine, const Tensor& residual,
                                 bool relu, bool want_mask, bool over_residual);
// z where the mask is set, else 0: linear in x and residual, and bit-equal to batch_norm_apply's y
// for the same x and its mask.
Tensor batch_norm_by_mask(const Tensor& x, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, const Tensor& residual,
                          const Tensor& mask);

// mask undefined: no relu. dresidual, the masked dy, only if asked for. `training`: the statistics
// depend on x. `overwrite`: dy, contiguous, becomes dresidual where that is asked for, else dx.
struct BatchNormGradients {
  Tensor dx, dweight, dbias, dresidual;
};
BatchNormGradients batch_norm_backward(const Tensor& dy, const Tensor& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, const Tensor& mask,
                                       bool training, bool want_residual, bool overwrite = false);

// The same, bit for bit, from an x that comes in slices of dy's leading axis, twice: `x` and `mask`
// give the elements from begin to before end, a mask as the bitmask of that slice. REQUIRES: `step`
// a multiple of batch_norm_slice_unit(dy's shape and device); masks of the by-rows layout.
using BatchNormSlice = std::function<Tensor(int64_t begin, int64_t end)>;
BatchNormGradients batch_norm_backward(const Tensor& dy, const BatchNormSlice& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training,
                                       bool want_residual, bool overwrite);
int64_t batch_norm_slice_unit(const Shape& shape, Device device);

// Its two passes apart, so that dx may be made in slices when it is asked for. g: the masked dy, in
// dy's place if `overwrite`. affine [4, C]: what dx needs to know of the whole batch.
struct BatchNormSums {
  Tensor g, dweight, dbias, affine;
};
BatchNormSums batch_norm_backward_sums(const Tensor& dy, const BatchNormSlice& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training,
                                       bool overwrite);
// The first pass as `pass` makes it, which takes x from where it is. It writes what
// gradient_sums_kernel (ops/image/batch_norm_kernels.h) writes to `partial`, whose chunks have
// `chunk_rows` rows each. dweight is undefined where the pass returns false, with nothing done.
using BatchNormSumsPass =
    std::function<bool(const Tensor& mean, const Tensor& partial, int64_t chunk_rows)>;
BatchNormSums batch_norm_backward_sums(const Tensor& dy, const BatchNormSumsPass& pass,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, bool training);
// Any items of g, x and dx, contiguous, of g's shape.  Errors: anything else.
void batch_norm_backward_input_into(const Tensor& dx, const Tensor& g, const Tensor& x,
                                    const Tensor& affine);

}  // namespace frugal::ops
