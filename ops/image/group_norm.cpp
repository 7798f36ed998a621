#include "ops/image/group_norm.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/dtype_switch.h"
#include "ops/checks.h"
#include "ops/dense/copy.h"
#include "ops/f32_blocks.h"
#include "ops/shared_kernels.h"

// Sums are taken for each channel of a sample first, [C], and then over the channels of a group, so
// that loops run along memory. They are f64 over chunks of rows, so images with many pixels lose no
// digits.
namespace frugal::ops {
namespace {

struct Extents {
  int64_t n, rows, channels, groups, width;  // width: channels in a group
};

Extents extents_of(const Tensor& x, const Tensor& invstd) {
  const int64_t n = x.size(0), c = x.shape().back(), groups = invstd.size(1);
  return {n, n == 0 ? 0 : x.numel() / n / c, c, groups, c / groups};
}

// For each channel k: to[k] = sum of f(row, k) over the rows of a sample.
template <class T, class F>
void sum_rows(const Extents& e, std::vector<double>& to, F f) {
  to.assign(static_cast<size_t>(e.channels), 0.0);
  std::vector<T> part(static_cast<size_t>(e.channels));
  constexpr int64_t kChunkRows = 64;
  for (int64_t begin = 0; begin < e.rows; begin += kChunkRows) {
    const int64_t end = std::min(e.rows, begin + kChunkRows);
    std::fill(part.begin(), part.end(), T{0});
    for (int64_t row = begin; row < end; ++row)
      for (int64_t k = 0; k < e.channels; ++k) part[static_cast<size_t>(k)] += f(row, k);
    for (size_t k = 0; k < part.size(); ++k) to[k] += static_cast<double>(part[k]);
  }
}

// The sum of a group's channels.
double sum_group(const std::vector<double>& channels, const Extents& e, int64_t group) {
  double sum = 0;
  for (int64_t k = group * e.width; k < (group + 1) * e.width; ++k)
    sum += channels[static_cast<size_t>(k)];
  return sum;
}

// The number of each group, repeated for all channels of the group.
template <class T>
void spread(const T* of_groups, const Extents& e, std::vector<T>& to) {
  to.resize(static_cast<size_t>(e.channels));
  for (int64_t k = 0; k < e.channels; ++k) to[static_cast<size_t>(k)] = of_groups[k / e.width];
}

template <class T>
void measure(const T* x, const Extents& e, double eps, T* mean, T* invstd) {
  const double count = static_cast<double>(e.rows * e.width);
  std::vector<double> sums;
  // Differences to the first row are summed, because a sum of large values would miss by some ulps.
  sum_rows<T>(e, sums, [&](int64_t row, int64_t k) { return x[row * e.channels + k] - x[k]; });
  for (int64_t k = 0; k < e.channels; ++k)
    sums[static_cast<size_t>(k)] += static_cast<double>(e.rows) * static_cast<double>(x[k]);
  for (int64_t g = 0; g < e.groups; ++g) mean[g] = static_cast<T>(sum_group(sums, e, g) / count);
  std::vector<T> centre;
  spread(mean, e, centre);
  sum_rows<T>(e, sums, [&](int64_t row, int64_t k) {
    const T d = x[row * e.channels + k] - centre[static_cast<size_t>(k)];
    return d * d;
  });
  for (int64_t g = 0; g < e.groups; ++g)
    invstd[g] = static_cast<T>(1 / std::sqrt(sum_group(sums, e, g) / count + eps));
}

template <class T>
void write_normalized(const T* x, const Extents& e, const T* mean, const T* invstd, const T* weight,
                      const T* bias, T* y) {
  std::vector<T> centre, scale;
  spread(mean, e, centre);
  spread(invstd, e, scale);
  for (int64_t row = 0; row < e.rows; ++row)
    for (int64_t k = 0; k < e.channels; ++k) {
      const T xhat = (x[row * e.channels + k] - centre[static_cast<size_t>(k)]) *
                     scale[static_cast<size_t>(k)];
      y[row * e.channels + k] =
          xhat * (weight != nullptr ? weight[k] : T{1}) + (bias != nullptr ? bias[k] : T{0});
    }
}

// Sums of one sample. terms [2, C]: dy and dy xhat.
template <class T>
void sample_backward(const T* dy, const T* x, const Extents& e, const T* mean, const T* invstd,
                     const T* scale_of_dx, const T* gain, const T* weight, T* dx, double* terms) {
  const auto w = [&](int64_t k) { return weight != nullptr ? static_cast<double>(weight[k]) : 1; };
  std::vector<T> centre, scale;
  spread(mean, e, centre);
  spread(invstd, e, scale);
  std::vector<double> of_dy, of_product;
  sum_rows<T>(e, of_dy, [&](int64_t row, int64_t k) { return dy[row * e.channels + k]; });
  sum_rows<T>(e, of_product, [&](int64_t row, int64_t k) {
    const int64_t i = row * e.channels + k;
    return dy[i] * (x[i] - centre[static_cast<size_t>(k)]) * scale[static_cast<size_t>(k)];
  });
  std::copy(of_dy.begin(), of_dy.end(), terms);
  std::copy(of_product.begin(), of_product.end(), terms + e.channels);
  if (dx == nullptr) return;
  for (int64_t k = 0; k < e.channels; ++k) {
    of_dy[static_cast<size_t>(k)] *= w(k);
    of_product[static_cast<size_t>(k)] *= w(k);
  }
  // dx = scale (weight dy - avg(weight dy) - xhat avg(weight dy xhat)), averages over the group
  const double count = static_cast<double>(e.rows * e.width);
  std::vector<T> shift(static_cast<size_t>(e.groups)), slope(static_cast<size_t>(e.groups));
  for (int64_t g = 0; g < e.groups; ++g) {
    shift[static_cast<size_t>(g)] = static_cast<T>(sum_group(of_dy, e, g) / count);
    slope[static_cast<size_t>(g)] = static_cast<T>(sum_group(of_product, e, g) / count);
  }
  std::vector<T> shifts, slopes, outer;
  spread(scale_of_dx, e, outer);
  spread(shift.data(), e, shifts);
  spread(slope.data(), e, slopes);
  for (int64_t row = 0; row < e.rows; ++row)
    for (int64_t k = 0; k < e.channels; ++k) {
      const int64_t i = row * e.channels + k;
      const auto c = static_cast<size_t>(k);
      const T xhat = (x[i] - centre[c]) * scale[c];
      dx[i] = outer[c] *
              (dy[i] * (weight != nullptr ? weight[k] : T{1}) * (gain != nullptr ? gain[k] : T{1}) -
               shifts[c] - xhat * slopes[c]);
    }
}

void check_group_norm(const char* op, const Tensor& x, int64_t groups, const Tensor& weight,
                      const Tensor& bias) {
  check_real(op, "x", x);
  FRUGAL_CHECK(x.dim() >= 2 && x.size(-1) >= 1,
               "[{}] expected x [N, ..., C] with at least one channel, got {}", op, describe(x));
  FRUGAL_CHECK(groups >= 1 && x.size(-1) % groups == 0,
               "[{}] expected groups that divide {} channels, got {}", op, x.size(-1), groups);
  for (const Tensor* v : {&weight, &bias})
    if (v->defined()) {
      check_shape(op, v == &weight ? "weight" : "bias", *v, {x.size(-1)});
      check_beside(op, x, {v});
    }
}

void check_moments(const char* op, const Tensor& x, const RowMoments& moments) {
  check_dim(op, "invstd", moments.invstd, 2);
  check_shape(op, "mean", moments.mean, moments.invstd.shape());
  FRUGAL_CHECK(moments.invstd.size(0) == x.size(0), "[{}] expected statistics [{}, groups], got {}",
               op, x.size(0), describe(moments.invstd));
  if (moments.scale.defined()) check_shape(op, "scale", moments.scale, moments.invstd.shape());
  if (moments.gain.defined()) check_shape(op, "gain", moments.gain, {x.size(-1)});
  check_beside(op, x, {&moments.mean, &moments.invstd, &moments.scale});
}

}  // namespace

void group_norm_kernel(Cpu, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out) {
  if (x.numel() == 0) {
    if (!given) {
      fill_kernel(Cpu{}, out.moments.mean, 0);
      fill_kernel(Cpu{}, out.moments.invstd, 1 / std::sqrt(eps));
    }
    return;
  }
  const Extents e = extents_of(x, out.moments.invstd);
  const int64_t each = e.rows * e.channels;
  const auto sample = [&]<class T>(const T* from, int64_t n, T* to) {
    T* mean = out.moments.mean.mut<T>() + n * e.groups;
    T* invstd = out.moments.invstd.mut<T>() + n * e.groups;
    if (!given) measure(from, e, eps, mean, invstd);
    write_normalized<T>(from, e, mean, invstd, data_or_null<T>(weight), data_or_null<T>(bias), to);
  };
  if (x.dtype() != DType::f64) {
    for_f32_rows(e.n, each, 1, 1, {&x}, {&out.y},
                 [&](const F32Rows& r) { sample(r.in[0], r.first, r.out[0]); });
    return;
  }
  for (int64_t n = 0; n < e.n; ++n)
    sample(x.data<double>() + n * each, n, out.y.mut<double>() + n * each);
}

void group_norm_backward_kernel(Cpu, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out) {
  const Extents e = extents_of(x, moments.invstd);
  const Tensor& scale = moments.scale.defined() ? moments.scale : moments.invstd;
  std::vector<double> terms(static_cast<size_t>(2 * e.n * e.channels), 0.0);
  const int64_t each = e.rows * e.channels;
  const auto sample = [&]<class T>(const T* of_y, const T* of_x, int64_t n, T* to) {
    sample_backward<T>(of_y, of_x, e, moments.mean.data<T>() + n * e.groups,
                       moments.invstd.data<T>() + n * e.groups, scale.data<T>() + n * e.groups,
                       data_or_null<T>(moments.gain), data_or_null<T>(weight), to,
                       terms.data() + 2 * n * e.channels);
  };
  if (each > 0 && x.dtype() != DType::f64)
    for_f32_rows(e.n, each, 1, 1, {&dy, &x}, {&out.dx},
                 [&](const F32Rows& r) { sample(r.in[0], r.in[1], r.first, r.out[0]); });
  else if (each > 0)
    for (int64_t n = 0; n < e.n; ++n)
      sample(dy.data<double>() + n * each, x.data<double>() + n * each, n,
             out.dx.defined() ? out.dx.mut<double>() + n * each : nullptr);
  with_real(dtype_beside(x), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t k = 0; k < e.channels; ++k) {
      double of_dy = 0, of_product = 0;
      for (int64_t n = 0; n < e.n; ++n) {
        of_dy += terms[static_cast<size_t>(2 * n * e.channels + k)];
        of_product += terms[static_cast<size_t>((2 * n + 1) * e.channels + k)];
      }
      if (out.dweight.defined()) out.dweight.mut<T>()[k] = static_cast<T>(of_product);
      if (out.dbias.defined()) out.dbias.mut<T>()[k] = static_cast<T>(of_dy);
    }
  });
}

LayerNormOutput group_norm(const Tensor& x, int64_t groups, const Tensor& weight,
                           const Tensor& bias, double eps) {
  check_group_norm("group_norm", x, groups, weight, bias);
  FRUGAL_CHECK(eps > 0, "[group_norm] expected eps above 0, got {}", eps);
  LayerNormOutput out{Tensor::empty(x.shape(), x.dtype(), x.device()),
                      {Tensor::empty({x.size(0), groups}, dtype_beside(x), x.device()),
                       Tensor::empty({x.size(0), groups}, dtype_beside(x), x.device())}};
  const Tensor in = contiguous(x), w = contiguous_or_none(weight), b = contiguous_or_none(bias);
  dispatch(x.device(),
           [&](auto backend) { group_norm_kernel(backend, in, w, b, eps, false, out); });
  return out;
}

Tensor group_norm_apply(const Tensor& x, const RowMoments& moments, const Tensor& weight,
                        const Tensor& bias, bool overwrite) {
  check_moments("group_norm", x, moments);
  check_group_norm("group_norm", x, moments.invstd.size(1), weight, bias);
  const bool over_x = overwrite && x.is_contiguous();
  const LayerNormOutput out{over_x ? x : Tensor::empty(x.shape(), x.dtype(), x.device()),
                            {contiguous(moments.mean), contiguous(moments.invstd)}};
  const Tensor in = contiguous(x), w = contiguous_or_none(weight), b = contiguous_or_none(bias);
  dispatch(x.device(), [&](auto backend) { group_norm_kernel(backend, in, w, b, 0, true, out); });
  if (over_x) out.y.bump_version();
  return out.y;
}

LayerNormGradients group_norm_backward(const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                       const Tensor& weight, const LayerNormWants& wants) {
  check_moments("group_norm_backward", x, moments);
  check_group_norm("group_norm_backward", x, moments.invstd.size(1), weight, {});
  check_shape("group_norm_backward", "dy", dy, x.shape());
  check_same("group_norm_backward", x, {&dy});
  LayerNormGradients out;
  if (wants.dx) out.dx = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (wants.dweight) out.dweight = Tensor::empty({x.size(-1)}, dtype_beside(x), x.device());
  if (wants.dbias) out.dbias = Tensor::empty({x.size(-1)}, dtype_beside(x), x.device());
  const Tensor g = contiguous(dy), in = contiguous(x), w = contiguous_or_none(weight);
  const RowMoments groups{contiguous(moments.mean), contiguous(moments.invstd),
                          contiguous_or_none(moments.scale), contiguous_or_none(moments.gain)};
  dispatch(x.device(),
           [&](auto backend) { group_norm_backward_kernel(backend, g, in, groups, w, out); });
  return out;
}

}  // namespace frugal::ops
