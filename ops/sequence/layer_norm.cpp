#include "ops/sequence/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/sequence/layer_norm_loops.h"
#include "ops/shared_kernels.h"

namespace frugal::ops {
namespace {

// Depends only on the shape, so results do not depend on the number of threads.
int64_t rows_per_chunk(int64_t rows, int64_t width) {
  constexpr int64_t kChunkElements = 1 << 14;  // at least
  constexpr int64_t kChunks = 64;              // the most sums that are added at the end
  const int64_t some = std::max<int64_t>(kChunkElements / width, 1);
  return (std::max(some, (rows + kChunks - 1) / kChunks) + 3) / 4 * 4;
}

simd::RowNorm row_norm(const RowMoments& moments, const Tensor& weight, const Tensor& bias,
                       int64_t row, int64_t rows, int64_t width) {
  return {data_or_null<float>(weight),
          data_or_null<float>(bias),
          moments.mean.defined() ? moments.mean.mut<float>() + row : nullptr,
          moments.invstd.mut<float>() + row,
          rows,
          width,
          moments.scale.defined() ? moments.scale.data<float>() + row : nullptr,
          data_or_null<float>(moments.gain)};
}

// ---- f64, plain loops

void layer_norm_reference(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                          bool given, const LayerNormOutput& out) {
  const int64_t width = width_of(x), rows = rows_of(x);
  const auto n = static_cast<double>(width);
  const double *w = data_or_null<double>(weight), *b = data_or_null<double>(bias);
  const Tensor &mean = out.moments.mean, &invstd = out.moments.invstd;
  parallel_for(0, rows, rows_at_once(kArithmeticGrain, width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const double* from = x.data<double>() + row * width;
      double* to = out.y.mut<double>() + row * width;
      if (!given) {
        double sum = 0, squares = 0, off = 0;
        for (int64_t k = 0; mean.defined() && k < width; ++k) sum += from[k];
        // The mean is corrected, as in f32: see layer_norm_loops.cpp.
        for (int64_t k = 0; mean.defined() && k < width; ++k) off += from[k] - sum / n;
        const double centre = sum / n + off / n;
        if (mean.defined()) mean.mut<double>()[row] = centre;
        for (int64_t k = 0; k < width; ++k) squares += (from[k] - centre) * (from[k] - centre);
        invstd.mut<double>()[row] = 1 / std::sqrt(squares / n + eps);
      }
      const double centre = mean.defined() ? mean.data<double>()[row] : 0;
      const double scale = invstd.data<double>()[row];
      for (int64_t k = 0; k < width; ++k)
        to[k] = (from[k] - centre) * scale * (w != nullptr ? w[k] : 1) + (b != nullptr ? b[k] : 0);
    }
  });
}

void layer_norm_backward_reference(const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                   const Tensor& weight, const LayerNormGradients& out) {
  const int64_t width = width_of(x), rows = rows_of(x);
  const auto n = static_cast<double>(width);
  const double *w = data_or_null<double>(weight), *gain = data_or_null<double>(moments.gain);
  for (int64_t row = 0; row < rows; ++row) {
    const double *g = dy.data<double>() + row * width, *v = x.data<double>() + row * width;
    const double mean = moments.mean.defined() ? moments.mean.data<double>()[row] : 0;
    const double invstd = moments.invstd.data<double>()[row];
    const double scale = moments.scale.defined() ? moments.scale.data<double>()[row] : invstd;
    double sum = 0, product = 0;
    for (int64_t k = 0; k < width; ++k) {
      const double weighted = g[k] * (w != nullptr ? w[k] : 1), xhat = (v[k] - mean) * invstd;
      sum += weighted;
      product += weighted * xhat;
      if (out.dweight.defined()) out.dweight.mut<double>()[k] += g[k] * xhat;
      if (out.dbias.defined()) out.dbias.mut<double>()[k] += g[k];
    }
    if (!moments.mean.defined()) sum = 0;
    if (!out.dx.defined()) continue;
    double* to = out.dx.mut<double>() + row * width;
    for (int64_t k = 0; k < width; ++k)
      to[k] = scale * (g[k] * (w != nullptr ? w[k] : 1) * (gain != nullptr ? gain[k] : 1) -
                       sum / n - (v[k] - mean) * invstd * product / n);
  }
}

// ---- checks

void check_vector(const char* op, const char* name, const Tensor& v, const Tensor& x) {
  if (!v.defined()) return;
  check_shape(op, name, v, {width_of(x)});
  check_beside(op, x, {&v});
}

void check_layer_norm(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_real(op, "x", x);
  FRUGAL_CHECK(x.dim() >= 1 && x.size(-1) >= 1,
               "[{}] expected x [..., C] with at least one channel, got {}", op, describe(x));
  check_vector(op, "weight", weight, x);
  check_vector(op, "bias", bias, x);
}

Tensor per_row(const Tensor& x) {
  Shape shape;
  for (int axis = 0; axis + 1 < x.dim(); ++axis) shape.push_back(x.shape()[axis]);
  return Tensor::empty(shape, dtype_beside(x), x.device());
}

LayerNormOutput normalized_rows(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                double eps, bool centred) {
  LayerNormOutput out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                      {centred ? per_row(x) : Tensor(), per_row(x)}};
  const Tensor in = contiguous(x), w = contiguous_or_none(weight), b = contiguous_or_none(bias);
  dispatch(x.device(),
           [&](auto backend) { layer_norm_kernel(backend, in, w, b, eps, false, out); });
  return out;
}

}  // namespace

void layer_norm_kernel(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out) {
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return layer_norm_reference(x, weight, bias, eps, given, out);
  const int64_t width = width_of(x), grain = rows_at_once(kArithmeticGrain, width);
  for_f32_rows(rows_of(x), width, grain, grain, {&x}, {&out.y}, [&](const F32Rows& r) {
    const simd::RowNorm norm = row_norm(out.moments, weight, bias, r.first, r.rows, width);
    given ? simd::apply_row_norm(r.in[0], norm, r.out[0])
          : simd::normalize_rows(r.in[0], norm, eps, r.out[0]);
  });
}

void layer_norm_backward_kernel(Cpu, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out) {
  for (const Tensor* sum : {&out.dweight, &out.dbias})
    if (sum->defined()) fill_kernel(Cpu{}, *sum, 0);
  if (x.numel() == 0) return;
  if (x.dtype() == DType::f64) return layer_norm_backward_reference(dy, x, moments, weight, out);
  const int64_t width = width_of(x), rows = rows_of(x), step = rows_per_chunk(rows, width);
  const int64_t chunks = (rows + step - 1) / step;
  const bool want_sums = out.dweight.defined() || out.dbias.defined();
  CategoryScope scope(Category::workspace);
  const Tensor sums = want_sums ? Tensor::empty({chunks, 2, width}) : Tensor();
  for_f32_rows(rows, width, step, step, {&dy, &x}, {&out.dx}, [&](const F32Rows& r) {
    float* of_weight = want_sums ? sums.mut<float>() + r.first / step * 2 * width : nullptr;
    float* of_bias = want_sums ? of_weight + width : nullptr;
    if (want_sums && r.first % step == 0) std::fill_n(of_weight, 2 * width, 0.0f);
    simd::row_norm_gradients(r.in[0], r.in[1],
                             row_norm(moments, weight, {}, r.first, r.rows, width), r.out[0],
                             of_weight, of_bias);
  });
  if (!want_sums) return;
  std::vector<double> totals(static_cast<size_t>(width));
  for (int which = 0; which < 2; ++which) {
    const Tensor& to = which == 0 ? out.dweight : out.dbias;
    if (!to.defined()) continue;
    std::fill(totals.begin(), totals.end(), 0.0);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      const float* part = sums.data<float>() + (2 * chunk + which) * width;
      for (int64_t k = 0; k < width; ++k)
        totals[static_cast<size_t>(k)] += static_cast<double>(part[k]);
    }
    for (int64_t k = 0; k < width; ++k)
      to.mut<float>()[k] = static_cast<float>(totals[static_cast<size_t>(k)]);
  }
}

RowMoments normalized_moments(const Tensor& scale, bool centred) {
  const auto filled = [&](double value) {
    return Tensor::full(scale.shape(), value, scale.dtype(), scale.device());
  };
  return {centred ? filled(0) : Tensor(), filled(1), scale};
}

LayerNormOutput layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_layer_norm("layer_norm", x, weight, bias);
  FRUGAL_CHECK(eps > 0, "[layer_norm] expected eps above 0, got {}", eps);
  return normalized_rows(x, weight, bias, eps, true);
}

LayerNormOutput rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_layer_norm("rms_norm", x, weight, {});
  FRUGAL_CHECK(eps > 0, "[rms_norm] expected eps above 0, got {}", eps);
  return normalized_rows(x, weight, {}, eps, false);
}

Tensor layer_norm_apply(const Tensor& x, const RowMoments& moments, const Tensor& weight,
                        const Tensor& bias, bool overwrite) {
  check_layer_norm("layer_norm", x, weight, bias);
  const Shape shape = per_row(x).shape();
  check_shape("layer_norm", "invstd", moments.invstd, shape);
  if (moments.mean.defined()) check_shape("layer_norm", "mean", moments.mean, shape);
  check_beside("layer_norm", x, {&moments.mean, &moments.invstd});
  const bool over_x = overwrite && x.is_contiguous();
  const LayerNormOutput out{over_x ? x : Tensor::empty(x.shape(), x.dtype(), x.device()),
                            {contiguous_or_none(moments.mean), contiguous(moments.invstd)}};
  const Tensor in = contiguous(x), w = contiguous_or_none(weight), b = contiguous_or_none(bias);
  dispatch(x.device(), [&](auto backend) { layer_norm_kernel(backend, in, w, b, 0, true, out); });
  if (over_x) out.y.bump_version();
  return out.y;
}

LayerNormGradients layer_norm_backward(const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                       const Tensor& weight, const LayerNormWants& wants,
                                       bool overwrite) {
  check_layer_norm("layer_norm_backward", x, weight, {});
  check_shape("layer_norm_backward", "dy", dy, x.shape());
  check_shape("layer_norm_backward", "invstd", moments.invstd, per_row(x).shape());
  check_same("layer_norm_backward", x, {&dy});
  if (moments.scale.defined())
    check_shape("layer_norm_backward", "scale", moments.scale, moments.invstd.shape());
  check_vector("layer_norm_backward", "gain", moments.gain, x);
  check_beside("layer_norm_backward", x, {&moments.mean, &moments.invstd, &moments.scale});
  const bool over_dy = overwrite && dy.is_contiguous();
  LayerNormGradients out;
  if (wants.dx) out.dx = over_dy ? dy : Tensor::empty(x.shape(), x.dtype(), x.device());
  if (wants.dweight) out.dweight = Tensor::empty({width_of(x)}, dtype_beside(x), x.device());
  if (wants.dbias) out.dbias = Tensor::empty({width_of(x)}, dtype_beside(x), x.device());
  const Tensor g = contiguous(dy), in = contiguous(x), w = contiguous_or_none(weight);
  const RowMoments rows{contiguous_or_none(moments.mean), contiguous(moments.invstd),
                        contiguous_or_none(moments.scale), contiguous_or_none(moments.gain)};
  dispatch(x.device(),
           [&](auto backend) { layer_norm_backward_kernel(backend, g, in, rows, w, out); });
  if (wants.dx && over_dy) out.dx.bump_version();
  return out;
}

}  // namespace frugal::ops
