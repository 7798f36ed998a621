#include "ops/batch_norm.h"

#include <algorithm>

#include "ops/batch_norm_kernels.h"
#include "ops/bitmask.h"
#include "ops/checks.h"
#include "ops/copy.h"

namespace frugal::ops {
namespace {

constexpr const char* kOp = "batch_norm";

int64_t check_x(const Tensor& x) {
  check_real(kOp, "x", x);
  FRUGAL_CHECK(x.dim() >= 2 && x.size(-1) >= 1, "[batch_norm] expected x [..., C], got {}",
               describe(x));
  return x.size(-1);
}

void check_channels(const Tensor& x,
                    std::initializer_list<std::pair<const char*, const Tensor*>> all) {
  for (const auto& [name, tensor] : all) {
    if (!tensor->defined()) continue;
    check_shape(kOp, name, *tensor, {x.size(-1)});
    check_same(kOp, x, {tensor});
  }
}

Tensor workspace(const Shape& shape, DType dtype, Device device) {
  CategoryScope scope(Category::workspace);
  return Tensor::empty(shape, dtype, device);
}

BatchNormMoments empty_moments(int64_t c, DType dtype, Device device) {
  return {Tensor::empty({c}, dtype, device), Tensor::empty({c}, dtype, device)};
}

BatchNormParameters contiguous_parameters(const BatchNormParameters& p) {
  return {p.weight.defined() ? contiguous(p.weight) : p.weight,
          p.bias.defined() ? contiguous(p.bias) : p.bias};
}

// Running statistics are written where they lie.
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
  Tensor affine = workspace({3, x.size(-1)}, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) {
    fold_kernel(backend, contiguous_moments(moments), contiguous_parameters(parameters), affine);
  });
  return affine;
}

void check_residual(const Tensor& x, const Tensor& residual) {
  if (!residual.defined()) return;
  check_shape(kOp, "the residual", residual, x.shape());
  check_same(kOp, x, {&residual});
}

void check_mask(const Tensor& x, const Tensor& mask) {
  const BitmaskLayout layout = bitmask_layout(x.shape());
  check_shape(kOp, "the mask", mask, {layout.rows / 8, layout.cols});
  FRUGAL_CHECK(mask.dtype() == DType::u8 && mask.device() == x.device(),
               "[batch_norm] expected the mask of dtype u8 on {}, got {}", x.device().str(),
               describe(mask));
}

bool by_rows(const Tensor& x) { return bitmask_layout(x.shape()).by_rows; }

}  // namespace

BatchNormMoments batch_norm_moments(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const BatchNormOptions& options) {
  const int64_t c = check_x(x), rows = x.numel() / c;
  FRUGAL_CHECK(rows >= 2, "[batch_norm] expected at least 2 rows to train on, got {}", describe(x));
  check_channels(x, {{"running_mean", &running_mean}, {"running_var", &running_var}});
  check_running({{"running_mean", &running_mean}, {"running_var", &running_var}});
  const Tensor in = contiguous(x);
  const Tensor mean = workspace({c}, DType::f64, x.device());
  const Tensor variance = workspace({c}, DType::f64, x.device());
  BatchNormMoments moments = empty_moments(c, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) {
    moments_kernel(backend, in, mean, variance);
    finish_moments_kernel(backend, mean, variance, rows, options, moments, running_mean,
                          running_var);
  });
  if (running_mean.defined()) running_mean.bump_version();
  if (running_var.defined()) running_var.bump_version();
  return moments;
}

BatchNormMoments batch_norm_running(const Tensor& running_mean, const Tensor& running_var,
                                    double eps) {
  check_real(kOp, "running_mean", running_mean);
  check_dim(kOp, "running_mean", running_mean, 1);
  check_defined(kOp, "running_var", running_var);
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
                                 bool relu, bool want_mask) {
  check_x(x);
  FRUGAL_CHECK(relu || !want_mask, "[batch_norm] expected a mask to go with a relu, got none");
  check_residual(x, residual);
  const Tensor in = contiguous(x), affine = folded(x, moments, parameters);
  const Tensor added = residual.defined() ? contiguous(residual) : residual;
  BatchNormOutput out{Tensor::empty(x.shape(), x.dtype(), x.device()), {}};
  const bool fused = by_rows(x);
  if (want_mask && fused) out.mask = empty_bitmask(x.shape(), x.device());
  if (x.numel() == 0) return out;
  dispatch(x.device(), [&](auto backend) {
    normalize_kernel(backend, in, added, affine, relu && (fused || !want_mask), out.y, out.mask);
  });
  if (want_mask && !fused) {
    Rectified rectified = rectify(out.y, 0, true);
    out = {rectified.y, rectified.mask};
  }
  return out;
}

Tensor batch_norm_by_mask(const Tensor& x, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, const Tensor& residual,
                          const Tensor& mask) {
  check_x(x);
  check_residual(x, residual);
  check_mask(x, mask);
  if (!by_rows(x))
    return select_by_mask(batch_norm_apply(x, moments, parameters, residual, false, false).y, mask,
                          0);
  const Tensor in = contiguous(x), affine = folded(x, moments, parameters);
  const Tensor added = residual.defined() ? contiguous(residual) : residual;
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  dispatch(x.device(),
           [&](auto backend) { normalize_by_mask_kernel(backend, in, added, affine, mask, y); });
  return y;
}

BatchNormGradients batch_norm_backward(const Tensor& dy, const Tensor& x,
                                       const BatchNormMoments& moments,
                                       const BatchNormParameters& parameters, const Tensor& mask,
                                       bool training, bool want_residual) {
  const int64_t c = check_x(x), rows = x.numel() / c;
  check_shape(kOp, "dy", dy, x.shape());
  check_same(kOp, x, {&dy});
  check_channels(
      x, {{"weight", &parameters.weight}, {"mean", &moments.mean}, {"invstd", &moments.invstd}});
  if (mask.defined()) check_mask(x, mask);
  Tensor gradient = contiguous(dy), applied = mask;
  const Tensor in = contiguous(x);
  BatchNormGradients out;
  if (mask.defined() && !by_rows(x)) {
    gradient = select_by_mask(gradient, mask, 0);
    applied = Tensor();
  }
  if (want_residual)
    out.dresidual = applied.defined() ? Tensor::empty(x.shape(), x.dtype(), x.device()) : gradient;
  out.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  out.dweight = Tensor::empty({c}, x.dtype(), x.device());
  out.dbias = Tensor::empty({c}, x.dtype(), x.device());
  const Tensor sums = workspace({2, c}, DType::f64, x.device());
  const Tensor affine = workspace({4, c}, x.dtype(), x.device());
  dispatch(x.device(), [&](auto backend) {
    const Tensor masked = applied.defined() ? out.dresidual : Tensor();
    gradient_sums_kernel(backend, gradient, applied, in, contiguous(moments.mean), masked, sums);
    fold_gradient_kernel(backend, sums, rows, contiguous_moments(moments),
                         contiguous_parameters(parameters), training, affine, out.dweight,
                         out.dbias);
    if (masked.defined())
      input_gradient_kernel(backend, masked, {}, in, affine, out.dx);
    else
      input_gradient_kernel(backend, gradient, applied, in, affine, out.dx);
  });
  return out;
}

}  // namespace frugal::ops
