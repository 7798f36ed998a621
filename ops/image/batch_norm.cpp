#include "ops/image/batch_norm.h"

#include <algorithm>
#include <numeric>

#include "ops/checks.h"
#include "ops/dense/bitmask.h"
#include "ops/dense/copy.h"
#include "ops/image/batch_norm_kernels.h"
#include "ops/image/batch_statistics.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

constexpr const char* kBatchNorm = "batch_norm";

int64_t check_x(const Tensor& x) {
  check_real(kBatchNorm, "x", x);
  FRUGAL_CHECK(x.dim() >= 2 && x.size(-1) >= 1, "[batch_norm] expected x [..., C], got {}",
               describe(x));
  return x.size(-1);
}

void check_channels(const Tensor& x,
                    std::initializer_list<std::pair<const char*, const Tensor*>> all) {
  for (const auto& [name, tensor] : all) {
    if (!tensor->defined()) continue;
    check_shape(kBatchNorm, name, *tensor, {x.size(-1)});
    check_beside(kBatchNorm, x, {tensor});
  }
}

BatchNormMoments empty_moments(int64_t c, DType dtype, Device device) {
  return {Tensor::empty({c}, dtype, device), Tensor::empty({c}, dtype, device)};
}

BatchNormParameters contiguous_parameters(const BatchNormParameters& p) {
  return {contiguous_or_none(p.weight), contiguous_or_none(p.bias)};
}

// Running statistics must be contiguous, because they are written in place.
void check_running(std::initializer_list<std::pair<const char*, const Tensor*>> all) {
  for (const auto& [name, tensor] : all)
    FRUGAL_CHECK(!tensor->defined() || tensor->is_contiguous(),
                 "[batch_norm] expected a contiguous {}, got strides {}", name, tensor->strides());
}

BatchNormMoments contiguous_moments(const BatchNormMoments& m) {
  return {contiguous(m.mean), contiguous(m.invstd)};
}

Tensor folded(const Tensor& x, const BatchNormMoments& moments,
              const BatchNormParameters& parameters) {
  check_channels(x, {{"weight", &parameters.weight},
                     {"bias", &parameters.bias},
                     {"mean", &moments.mean},
                     {"invstd", &moments.invstd}});
  Tensor affine = workspace({3, x.size(-1)}, dtype_beside(x), x.device());
  dispatch(x.device(), [&](auto backend) {
    fold_kernel(backend, contiguous_moments(moments), contiguous_parameters(parameters), affine);
  });
  return affine;
}

void check_residual(const Tensor& x, const Tensor& residual) {
  if (!residual.defined()) return;
  check_shape(kBatchNorm, "the residual", residual, x.shape());
  check_same(kBatchNorm, x, {&residual});
}

void check_mask(const Tensor& x, const Tensor& mask) {
  const BitmaskLayout layout = bitmask_layout(x.shape());
  check_shape(kBatchNorm, "the mask", mask, {layout.rows / 8, layout.cols});
  FRUGAL_CHECK(mask.dtype() == DType::u8 && mask.device() == x.device(),
               "[batch_norm] expected the mask of dtype u8 on {}, got {}", x.device().str(),
               describe(mask));
}

bool by_rows(const Tensor& x) { return bitmask_layout(x.shape()).by_rows; }

}  // namespace

namespace {

// `find` writes mean and variance of the rows, [C] f64.
template <class Find>
BatchNormMoments moments_by(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                            const BatchNormOptions& options, Find find) {
  const int64_t c = check_x(x), rows = x.numel() / c;
  const bool shared = shares_statistics(x.device());
  if (!shared && rows < 2)
    throw TooFewRows(fmt::format(
        "[batch_norm] expected at least 2 rows to train on, which have a variance, got {}",
        describe(x)));
  check_channels(x, {{"running_mean", &running_mean}, {"running_var", &running_var}});
  check_running({{"running_mean", &running_mean}, {"running_var", &running_var}});
  const Tensor mean = workspace({c}, DType::f64, x.device());
  const Tensor variance = workspace({c}, DType::f64, x.device());
  BatchNormMoments moments = empty_moments(c, dtype_beside(x), x.device());
  find(mean, variance);
  const int64_t all = shared ? share_moments(mean, variance, rows) : rows;
  if (all < 2)
    throw TooFewRows(
        fmt::format("[batch_norm] expected at least 2 rows to train on, got {} together", all));
  dispatch(x.device(), [&](auto backend) {
    finish_moments_kernel(backend, mean, variance, all, options, moments, running_mean,
                          running_var);
  });
  if (running_mean.defined()) running_mean.bump_version();
  if (running_var.defined()) running_var.bump_version();
  return moments;
}

}  // namespace

BatchNormMoments batch_norm_moments(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const BatchNormOptions& options) {
  return moments_by(
      x, running_mean, running_var, options, [&](const Tensor& mean, const Tensor& variance) {
        const Tensor in = contiguous(x);
        dispatch(x.device(), [&](auto backend) { moments_kernel(backend, in, mean, variance); });
      });
}

BatchNormMoments batch_norm_moments(const Tensor& like, const BatchNormSlice& x, int64_t step,
                                    const Tensor& running_mean, const Tensor& running_var,
                                    const BatchNormOptions& options) {
  FRUGAL_CHECK(like.dtype() != DType::f64 && like.device().type != DeviceType::cuda,
               "[batch_norm] expected slices of f32 or bf16 on cpu or meta, got {}",
               describe(like));
  return moments_by(
      like, running_mean, running_var, options, [&](const Tensor& mean, const Tensor& variance) {
        const int64_t c = like.size(-1), n = like.size(0), rows = like.numel() / c;
        const int64_t chunk = chunk_rows(like.device(), c);
        FRUGAL_ASSERT(step >= n || step % batch_norm_slice_unit(like.shape(), like.device()) == 0);
        const Tensor partial =
            workspace({(rows + chunk - 1) / chunk, 3, c}, DType::f32, like.device());
        for (int64_t begin = 0; begin < n; begin += step) {
          const Tensor part = x(begin, std::min(n, begin + step));
          if (like.device() == kCpu)
            moment_sums_kernel(Cpu{}, contiguous(part), begin * (rows / n), partial);
        }
        if (like.device() == kCpu) combine_moments_kernel(Cpu{}, partial, rows, mean, variance);
      });
}

BatchNormMoments batch_norm_running(const Tensor& running_mean, const Tensor& running_var,
                                    double eps) {
  check_real(kBatchNorm, "running_mean", running_mean);
  check_dim(kBatchNorm, "running_mean", running_mean, 1);
  check_defined(kBatchNorm, "running_var", running_var);
  check_channels(running_mean, {{"running_mean", &running_mean}, {"running_var", &running_var}});
  BatchNormMoments moments =
      empty_moments(running_mean.numel(), running_mean.dtype(), running_mean.device());
  dispatch(running_mean.device(), [&](auto backend) {
    running_moments_kernel(backend, contiguous(running_mean), contiguous(running_var), eps,
                           moments);
  });
  return moments;
}

BatchNormOutput batch_norm_apply(const Tensor& x, const BatchNormMoments& moments,
                                 const BatchNormParameters& parameters, const Tensor& residual,
                                 bool relu, bool want_mask, bool over_residual) {
  return batch_norm_apply(x, batch_norm_affine(x, moments, parameters, residual), residual, relu,
                          want_mask, over_residual);
}

BatchNormOutput batch_norm_apply(const Tensor& x, const Tensor& affine, const Tensor& residual,
                                 bool relu, bool want_mask, bool over_residual) {
  FRUGAL_CHECK(relu || !want_mask, "[batch_norm] expected a mask to go with a relu, got none");
  FRUGAL_CHECK(!over_residual || (residual.defined() && residual.is_contiguous()),
               "[batch_norm] expected a contiguous residual to write over");
  const Tensor in = contiguous(x);
  const Tensor added = contiguous_or_none(residual);
  BatchNormOutput out{over_residual ? residual : Tensor::empty(x.shape(), x.dtype(), x.device()),
                      {}};
  const bool fused = by_rows(x);
  if (want_mask && fused) out.mask = empty_bitmask(x.shape(), x.device());
  if (x.numel() == 0) return out;
  dispatch(x.device(), [&](auto backend) {
    normalize_kernel(backend, in, added, affine, relu && (fused || !want_mask), out.y, out.mask);
  });
  if (want_mask && !fused) out.mask = rectify_over(out.y, 0);
  return out;
}

Tensor batch_norm_affine(const BatchNormMoments& moments, const BatchNormParameters& parameters) {
  return folded(moments.mean, moments, parameters);
}

Tensor batch_norm_affine(const Tensor& x, const BatchNormMoments& moments,
                         const BatchNormParameters& parameters, const Tensor& residual) {
  check_x(x);
  check_residual(x, residual);
  return folded(x, moments, parameters);
}

Tensor batch_norm_by_mask(const Tensor& x, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, const Tensor& residual,
                          const Tensor& mask) {
  check_x(x);
  check_residual(x, residual);
  check_mask(x, mask);
  if (!by_rows(x)) {
    const Tensor y = batch_norm_apply(x, moments, parameters, residual, false, false).y;
    select_by_mask_over(y, mask, 0);
    return y;
  }
  const Tensor in = contiguous(x), affine = folded(x, moments, parameters);
  const Tensor added = contiguous_or_none(residual);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(),
           [&](auto backend) { normalize_by_mask_kernel(backend, in, added, affine, mask, y); });
  return y;
}

int64_t batch_norm_slice_unit(const Shape& shape, Device device) {
  const int64_t rows = shape.numel() / std::max<int64_t>(shape.back(), 1);
  const int64_t each = std::max<int64_t>(rows / std::max<int64_t>(shape[0], 1), 1);
  const int64_t chunk = chunk_rows(device, shape.back());
  return chunk / std::gcd(chunk, each);
}

namespace {

// A slice [begin, end) of x and the mask along the leading axis of dy.
struct Fetched {
  Tensor x, mask;
};
class Fetch {
 public:
  Fetch(const Tensor& dy, const BatchNormSlice& x, const BatchNormSlice& mask)
      : dy_(dy), x_(x), mask_(mask) {}
  Fetched operator()(int64_t begin, int64_t end, bool want_mask) const {
    Fetched out;
    const Tensor part = dy_.slice(0, begin, end);
    if (want_mask && mask_) {
      out.mask = mask_(begin, end);
      check_mask(part, out.mask);
    }
    out.x = contiguous(x_(begin, end));
    check_shape(kBatchNorm, "x", out.x, part.shape());
    check_same(kBatchNorm, dy_, {&out.x});
    return out;
  }

 private:
  const Tensor& dy_;
  const BatchNormSlice &x_, &mask_;
};

BatchNormSums empty_sums(const Tensor& dy, const Tensor& g) {
  const int64_t c = dy.size(-1);
  const DType dtype = dtype_beside(dy);
  return {g, Tensor::empty({c}, dtype, dy.device()), Tensor::empty({c}, dtype, dy.device()),
          workspace({4, c}, dtype, dy.device())};
}

// Undefined for f64.
Tensor empty_partial(const Tensor& dy) {
  if (dtype_beside(dy) == DType::f64) return {};
  const int64_t c = dy.size(-1), chunk = chunk_rows(dy.device(), c);
  return workspace({(dy.numel() / c + chunk - 1) / chunk, 2, c}, DType::f32, dy.device());
}

void finish_sums(const Tensor& dy, const Tensor& partial, const Tensor& sums,
                 const BatchNormMoments& moments, const BatchNormParameters& parameters,
                 bool training, const BatchNormSums& out) {
  const int64_t rows = dy.numel() / dy.size(-1);
  const BatchNormParameters p = contiguous_parameters(parameters);
  dispatch(dy.device(), [&](auto backend) {
    if (partial.defined()) combine_sums_kernel(backend, partial, sums);
    fold_gradient_kernel(backend, sums, rows, moments, p, training, out.affine, out.dweight,
                         out.dbias);
  });
  if (!training || !shares_statistics(dy.device())) return;
  // The gradients of weight and bias stay those of these rows. That of x follows from all rows.
  const int64_t all = share_sums(sums, rows);
  const Tensor unused = workspace(out.dweight.shape(), out.dweight.dtype(), dy.device());
  dispatch(dy.device(), [&](auto backend) {
    fold_gradient_kernel(backend, sums, all, moments, p, training, out.affine, unused, unused);
  });
}

// The first pass. `like`: has the shape of dy. `g`: receives the masked dy if it is defined.
// `fetched`: holds the last slice when the pass has ended.
BatchNormSums sums_of(const Tensor& like, const BatchNormSlice& dy, const Tensor& g,
                      const Fetch& fetch, const BatchNormMoments& moments,
                      const BatchNormParameters& parameters, int64_t step, bool training,
                      Fetched& fetched) {
  const int64_t c = like.size(-1), n = like.size(0), rows = like.numel() / c;
  const int64_t each = n == 0 ? 0 : rows / n;
  const Device device = like.device();
  const BatchNormSums out = empty_sums(like, g);
  const Tensor partial = empty_partial(like);
  const Tensor sums = workspace({2, c}, DType::f64, device);
  fill(sums, 0);
  const BatchNormMoments m = contiguous_moments(moments);
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step);
    fetched = {};  // releases the slice before the next one is made
    fetched = fetch(begin, end, true);
    const Tensor gradient = contiguous(dy(begin, end));
    dispatch(device, [&](auto backend) {
      gradient_sums_kernel(backend, gradient, fetched.mask, fetched.x, m.mean,
                           g.defined() ? g.slice(0, begin, end) : g, begin * each, partial, sums);
    });
  }
  finish_sums(like, partial, sums, m, parameters, training, out);
  return out;
}

// Slices of a tensor.
BatchNormSlice slices_of(const Tensor& tensor) {
  return [&tensor](int64_t begin, int64_t end) { return tensor.slice(0, begin, end); };
}

void check_batch_norm_backward(const Tensor& dy, const BatchNormMoments& moments,
                               const BatchNormParameters& parameters, int64_t step) {
  check_x(dy);
  check_channels(
      dy, {{"weight", &parameters.weight}, {"mean", &moments.mean}, {"invstd", &moments.invstd}});
  FRUGAL_ASSERT(step >= dy.size(0) ||
                (step > 0 && step % batch_norm_slice_unit(dy.shape(), dy.device()) == 0));
}

}  // namespace

BatchNormSums batch_norm_backward_sums(const Tensor& dy, const BatchNormSlice& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training,
                                       bool overwrite) {
  check_batch_norm_backward(dy, moments, parameters, step);
  const Tensor gradient = contiguous(dy);
  const bool mine = overwrite || gradient.storage() != dy.storage();
  const Tensor g = mine ? gradient : Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  Fetched last;
  BatchNormSums out = sums_of(gradient, slices_of(gradient), g, Fetch(dy, x, mask), moments,
                              parameters, step, training, last);
  if (overwrite) dy.bump_version();
  return out;
}

BatchNormSums batch_norm_backward_sums(const Tensor& like, const BatchNormSlice& dy,
                                       const BatchNormSlice& x, const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training) {
  check_batch_norm_backward(like, moments, parameters, step);
  Fetched last;
  return sums_of(like, dy, {}, Fetch(like, x, mask), moments, parameters, step, training, last);
}

BatchNormSums batch_norm_backward_sums(const Tensor& dy, const BatchNormSumsPass& pass,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, bool training) {
  check_batch_norm_backward(dy, moments, parameters, dy.size(0));
  const BatchNormMoments m = contiguous_moments(moments);
  const Tensor partial = empty_partial(dy);
  if (!pass(m.mean, partial, chunk_rows(dy.device(), dy.size(-1)))) return {};
  const BatchNormSums out = empty_sums(dy, {});
  const Tensor sums = workspace({2, dy.size(-1)}, DType::f64, dy.device());
  fill(sums, 0);
  finish_sums(dy, partial, sums, m, parameters, training, out);
  return out;
}

void batch_norm_backward_input_into(const Tensor& dx, const Tensor& g, const Tensor& x,
                                    const Tensor& affine, const Tensor& mask) {
  check_x(g);
  if (mask.defined()) check_mask(g, mask);
  check_shape(kBatchNorm, "x", x, g.shape());
  check_shape(kBatchNorm, "dx", dx, g.shape());
  check_shape(kBatchNorm, "affine", affine, {4, g.size(-1)});
  check_same(kBatchNorm, g, {&x, &dx});
  check_beside(kBatchNorm, g, {&affine});
  FRUGAL_CHECK(dx.is_contiguous(), "[batch_norm] expected a contiguous dx, got strides {}",
               dx.strides());
  const Tensor gradient = contiguous(g), in = contiguous(x);
  dispatch(g.device(),
           [&](auto backend) { input_gradient_kernel(backend, gradient, mask, in, affine, dx); });
}

BatchNormGradients batch_norm_backward(const Tensor& dy, const BatchNormSlice& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters,
                                       const BatchNormSlice& mask, int64_t step, bool training,
                                       bool want_residual, bool overwrite) {
  check_batch_norm_backward(dy, moments, parameters, step);
  const int64_t n = dy.size(0);
  const bool whole = step >= n;
  const Tensor gradient = contiguous(dy);
  const bool mine = overwrite || gradient.storage() != dy.storage();
  auto fresh = [&] { return Tensor::empty(dy.shape(), dy.dtype(), dy.device()); };
  BatchNormGradients out;
  Tensor g;
  if (want_residual) out.dresidual = g = mine ? gradient : fresh();
  out.dx = mine && !want_residual ? gradient : fresh();
  // A slice of the mask may be costly to make, so the masked dy is kept for the second pass.
  if (!whole && mask && !g.defined()) g = out.dx;
  const Fetch fetch(dy, x, mask);
  Fetched at;
  const BatchNormSums sums =
      sums_of(gradient, slices_of(gradient), g, fetch, moments, parameters, step, training, at);
  out.dweight = sums.dweight;
  out.dbias = sums.dbias;
  const Tensor& flowing = g.defined() ? g : gradient;
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t end = std::min(n, begin + step);
    if (!whole) at = {};
    if (!whole) at = fetch(begin, end, !g.defined());
    dispatch(dy.device(), [&](auto backend) {
      input_gradient_kernel(backend, flowing.slice(0, begin, end), g.defined() ? Tensor() : at.mask,
                            at.x, sums.affine, out.dx.slice(0, begin, end));
    });
  }
  if (overwrite) dy.bump_version();
  return out;
}

BatchNormGradients batch_norm_backward(const Tensor& dy, const Tensor& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, const Tensor& mask,
                                       bool training, bool want_residual, bool overwrite) {
  check_x(x);
  check_shape(kBatchNorm, "dy", dy, x.shape());
  check_same(kBatchNorm, x, {&dy});
  if (mask.defined()) check_mask(x, mask);
  const bool apart = mask.defined() && !by_rows(x);
  const Tensor gradient = apart ? select_by_mask(contiguous(dy), mask, 0) : dy;
  const BatchNormSlice masks = [&](int64_t, int64_t) { return mask; };
  return batch_norm_backward(
      gradient, [&](int64_t, int64_t) { return x; }, moments, parameters,
      mask.defined() && !apart ? masks : BatchNormSlice(), std::max<int64_t>(x.size(0), 1),
      training, want_residual, overwrite || apart);
}

}  // namespace frugal::ops
