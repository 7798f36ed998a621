// Batch normalisation over all rows of x [..., C]: alone, with relu, or with a residual and relu.
// f32 (SIMD, one pass for the statistics and one for the rest) and f64 (plain loops); on CUDA f32
// and bf16. Beside a bf16 x, all [C] tensors are f32. Ref: Ioffe & Szegedy 2015.
#pragma once
#include <functional>

#include "core/tensor.h"
#include "ops/options.h"

namespace frugal::ops {

struct BatchNormParameters {
  Tensor weight, bias;  // [C]; undefined: ones, zeros
};

// The mean and 1/sqrt(var + eps), both [C]. In training they come from x, with the biased variance.
struct BatchNormMoments {
  Tensor mean, invstd;
};
// A batch without a variance.
class TooFewRows : public Error {
 public:
  using Error::Error;
};

// For training. Also updates running_mean and running_var [C] in place, unless they are undefined:
// new = (1 - momentum) old + momentum batch, with the unbiased variance. Their versions rise.
// Errors: TooFewRows for fewer than two rows.
BatchNormMoments batch_norm_moments(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const BatchNormOptions& options);
// batch_norm_moments() for an f32 x that comes in slices of the leading axis, on the CPU or meta.
// The results have the same bits. `like` has the shape, dtype and device of x. REQUIRES: `step` is
// a multiple of batch_norm_slice_unit(shape, device). Errors: another dtype or device.
using BatchNormSlice = std::function<Tensor(int64_t begin, int64_t end)>;
BatchNormMoments batch_norm_moments(const Tensor& like, const BatchNormSlice& x, int64_t step,
                                    const Tensor& running_mean, const Tensor& running_var,
                                    const BatchNormOptions& options);
BatchNormMoments batch_norm_running(const Tensor& running_mean, const Tensor& running_var,
                                    double eps);

// z = weight (x - mean) invstd + bias [+ residual]. Without relu y = z; with relu y = 0 where z <=
// 0, else z. A bit of the mask (ops/dense/bitmask.h) is set where y = z; the mask is undefined
// unless asked for.
// `over_residual`: y is written over the residual, which is contiguous; the residual's version does
// not rise.
struct BatchNormOutput {
  Tensor y, mask;
};
BatchNormOutput batch_norm_apply(const Tensor& x, const BatchNormMoments& moments,
                                 const BatchNormParameters& parameters, const Tensor& residual,
                                 bool relu, bool want_mask, bool over_residual = false);
// [3, C], f32 or f64: z = (x - affine[0]) affine[1] + affine[2] without a residual.
Tensor batch_norm_affine(const BatchNormMoments& moments, const BatchNormParameters& parameters);
// batch_norm_apply() in two calls: the first one checks x and the residual and returns the affine,
// the second one applies this affine.
Tensor batch_norm_affine(const Tensor& x, const BatchNormMoments& moments,
                         const BatchNormParameters& parameters, const Tensor& residual);
BatchNormOutput batch_norm_apply(const Tensor& x, const Tensor& affine, const Tensor& residual,
                                 bool relu, bool want_mask, bool over_residual);
// z where the mask is set, else 0. Linear in x and residual. For the same x and its mask the bits
// are those of y from batch_norm_apply().
Tensor batch_norm_by_mask(const Tensor& x, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, const Tensor& residual,
                          const Tensor& mask);

// mask undefined: there was no relu. dresidual is the masked dy; it is defined only if asked for.
// `training`: the statistics depend on x. `overwrite`: dy, which is contiguous, is written over by
// dresidual if that is asked for, else by dx.
struct BatchNormGradients {
  Tensor dx, dweight, dbias, dresidual;
};
BatchNormGradients batch_norm_backward(const Tensor& dy, const Tensor& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, const Tensor& mask,
                                       bool training, bool want_residual, bool overwrite = false);

// batch_norm_backward() for an x that comes in slices of the leading axis of dy. The gradients have
// the same bits. Each slice is asked for twice. `x` and `mask` give the elements [begin, end), a
// mask as the bitmask of that slice. REQUIRES: `step` is a multiple of batch_norm_slice_unit(shape
// of dy, device); masks have the by-rows layout.
BatchNormGradients batch_norm_backward(const Tensor& dy, const BatchNormSlice& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training,
                                       bool want_residual, bool overwrite);
int64_t batch_norm_slice_unit(const Shape& shape, Device device);

// The two passes of the gradient as separate functions, so that dx can be made in slices when it is
// asked for. g: the masked dy, written over dy with `overwrite`. affine [4, C]: what dx needs to
// know about the whole batch.
struct BatchNormSums {
  Tensor g, dweight, dbias, affine;
};
BatchNormSums batch_norm_backward_sums(const Tensor& dy, const BatchNormSlice& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training,
                                       bool overwrite);
// The first pass for a dy that comes in slices, too. g is undefined, because dy is not kept. `like`
// has the shape, dtype and device of dy.
BatchNormSums batch_norm_backward_sums(const Tensor& like, const BatchNormSlice& dy,
                                       const BatchNormSlice& x, const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training);
// The first pass as `pass` makes it, which takes x from where it is. It writes what
// gradient_sums_kernel (ops/image/batch_norm_kernels.h) writes to `partial`, whose chunks have
// `chunk_rows` rows each. dweight is undefined where the pass returns false, with nothing done.
using BatchNormSumsPass =
    std::function<bool(const Tensor& mean, const Tensor& partial, int64_t chunk_rows)>;
BatchNormSums batch_norm_backward_sums(const Tensor& dy, const BatchNormSumsPass& pass,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, bool training);
// Computes some items of dx from the same items of g and x. All are contiguous and have the shape
// of g. `mask`, if it is defined, is applied to g first; it has the by-rows layout.  Errors: other
// shapes or layouts.
void batch_norm_backward_input_into(const Tensor& dx, const Tensor& g, const Tensor& x,
                                    const Tensor& affine, const Tensor& mask = {});

}  // namespace frugal::ops
