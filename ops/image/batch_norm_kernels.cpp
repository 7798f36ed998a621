#include "ops/image/batch_norm_kernels.h"

#include <algorithm>
#include <cmath>

#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "ops/shared_kernels.h"
#include "ops/simd/convert_loops.h"
#include "ops/simd/simd_loops.h"

namespace frugal::ops {
namespace {

constexpr int64_t kColumnGrain = 512;  // channels that one thread combines at least

// Calls f(first row, rows, chunk) for every chunk.
template <class F>
void for_chunks(const Tensor& x, F f) {
  const int64_t rows = rows_of(x), step = chunk_rows(kCpu, width_of(x));
  parallel_for(0, (rows + step - 1) / step, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk)
      f(chunk * step, std::min(step, rows - chunk * step), chunk);
  });
}

template <class T>
T* at(const Tensor& x, int64_t row) {
  return x.defined() ? x.mut<T>() + row * width_of(x) : nullptr;
}
simd::Input input_at(const Tensor& x, int64_t row) {
  return x.defined() ? simd::input_of(x, row * width_of(x)) : simd::Input{};
}
simd::Output channels_output(const Tensor& y) {
  return y.defined() ? simd::output_of(y, width_of(y)) : simd::Output{};
}
uint8_t* mask_at(const Tensor& mask, int64_t row) {
  return mask.defined() ? mask.mut<uint8_t>() + row / 8 * mask.shape()[1] : nullptr;
}
bool kept(const Tensor& mask, int64_t row, int64_t k) {
  return !mask.defined() || (mask_at(mask, row)[k] >> (row % 8) & 1) != 0;
}

// ---- f64, plain loops

void moments_reference(const Tensor& x, double* mean, double* variance) {
  const int64_t rows = rows_of(x), c = width_of(x);
  for (int64_t k = 0; k < c; ++k) {
    double sum = 0, squares = 0;
    for (int64_t row = 0; row < rows; ++row) sum += at<double>(x, row)[k];
    mean[k] = sum / static_cast<double>(rows);
    for (int64_t row = 0; row < rows; ++row) {
      const double d = at<double>(x, row)[k] - mean[k];
      squares += d * d;
    }
    variance[k] = squares / static_cast<double>(rows);
  }
}

// z at (row, k); affine [3, C]: mean, scale, bias.
double normalized_at(const Tensor& x, const Tensor& residual, const double* affine, int64_t row,
                     int64_t k) {
  const int64_t c = width_of(x);
  const double z = (at<double>(x, row)[k] - affine[k]) * affine[c + k] + affine[2 * c + k];
  return residual.defined() ? z + at<double>(residual, row)[k] : z;
}

void normalize_reference(const Tensor& x, const Tensor& residual, const double* affine, bool relu,
                         const Tensor& y, const Tensor& mask) {
  const int64_t c = width_of(x);
  if (mask.defined()) std::fill_n(mask.mut<uint8_t>(), mask.numel(), uint8_t{0});
  for (int64_t row = 0; row < rows_of(x); ++row)
    for (int64_t k = 0; k < c; ++k) {
      const double z = normalized_at(x, residual, affine, row, k);
      const bool keep = !relu || !(z <= 0);
      at<double>(y, row)[k] = keep ? z : 0;
      if (mask.defined() && keep)
        mask_at(mask, row)[k] = static_cast<uint8_t>(mask_at(mask, row)[k] | 1u << (row % 8));
    }
}

}  // namespace

// A multiple of 8. On the CPU it depends only on C, so that sums have the same order for every
// number of threads. On CUDA the sums of a chunk go through memory, so chunks of few rows would be
// too costly.
int64_t chunk_rows(Device device, int64_t c) {
  constexpr int64_t kChunkElements = 1 << 15;
  const int64_t least = device.type == DeviceType::cuda ? 64 : 8;
  return std::clamp<int64_t>(kChunkElements / std::max<int64_t>(c, 1) / 8 * 8, least, 512);
}

void moments_kernel(Cpu, const Tensor& x, const Tensor& mean, const Tensor& variance) {
  if (x.dtype() == DType::f64)
    return moments_reference(x, mean.mut<double>(), variance.mut<double>());
  const int64_t c = width_of(x), step = chunk_rows(kCpu, c);
  CategoryScope scope(Category::workspace);
  const Tensor partial = Tensor::empty({(rows_of(x) + step - 1) / step, 3, c}, DType::f32);
  moment_sums_kernel(Cpu{}, x, 0, partial);
  combine_moments_kernel(Cpu{}, partial, rows_of(x), mean, variance);
}

void moment_sums_kernel(Cpu, const Tensor& x, int64_t first, const Tensor& partial) {
  const int64_t c = width_of(x);
  float* chunks = partial.mut<float>() + first / chunk_rows(kCpu, c) * 3 * c;
  for_chunks(x, [&](int64_t row, int64_t rows, int64_t chunk) {
    float* sum = chunks + 3 * chunk * c;
    simd::chunk_moments(input_at(x, row), rows, c, sum, sum + c);
    if (x.dtype() == DType::bf16)
      simd::widen(x.data<BFloat16>() + row * c, sum + 2 * c, c);
    else
      std::copy_n(x.data<float>() + row * c, c, sum + 2 * c);
  });
}

// Chunks are combined in order in f64. Ref: Chan et al. 1979, equation 2.1.
void combine_moments_kernel(Cpu, const Tensor& partial, int64_t rows_in_all, const Tensor& mean,
                            const Tensor& variance) {
  double *m = mean.mut<double>(), *v = variance.mut<double>();
  const int64_t c = mean.numel(), step = chunk_rows(kCpu, c);
  parallel_for(0, c, kColumnGrain, [&](int64_t begin, int64_t end) {
    std::fill(m + begin, m + end, 0.0);
    std::fill(v + begin, v + end, 0.0);
    for (int64_t chunk = 0; chunk < partial.size(0); ++chunk) {
      const float* sum = partial.data<float>() + 3 * chunk * c;
      const float* first = sum + 2 * c;
      const auto seen = static_cast<double>(chunk * step);
      const auto rows = static_cast<double>(std::min(step, rows_in_all - chunk * step));
      const double share = rows / (seen + rows), each = 1 / rows;
      for (int64_t k = begin; k < end; ++k) {
        const double shifted = static_cast<double>(sum[k]) * each;
        const double squares =
            static_cast<double>(sum[c + k]) - shifted * static_cast<double>(sum[k]);
        const double delta = static_cast<double>(first[k]) + shifted - m[k];
        m[k] += delta * share;
        v[k] += squares + delta * delta * seen * share;
      }
    }
    const auto all = static_cast<double>(rows_in_all);
    for (int64_t k = begin; k < end; ++k) v[k] = v[k] < 0 ? 0 : v[k] / all;  // NaN stays
  });
}

void normalize_kernel(Cpu, const Tensor& x, const Tensor& residual, const Tensor& affine, bool relu,
                      const Tensor& y, const Tensor& mask) {
  if (x.dtype() == DType::f64)
    return normalize_reference(x, residual, affine.data<double>(), relu, y, mask);
  const int64_t c = width_of(x);
  const float* a = affine.data<float>();
  const simd::Output out = channels_output(y);
  for_chunks(x, [&](int64_t row, int64_t rows, int64_t) {
    simd::normalize(input_at(x, row), input_at(residual, row), {a, a + c, a + 2 * c}, relu,
                    out.from(row * c), mask_at(mask, row), rows, c);
  });
}

void normalize_by_mask_kernel(Cpu, const Tensor& x, const Tensor& residual, const Tensor& affine,
                              const Tensor& mask, const Tensor& y) {
  const int64_t c = width_of(x);
  if (x.dtype() == DType::f64) {
    for (int64_t row = 0; row < rows_of(x); ++row)
      for (int64_t k = 0; k < c; ++k)
        at<double>(y, row)[k] =
            kept(mask, row, k) ? normalized_at(x, residual, affine.data<double>(), row, k) : 0;
    return;
  }
  const float* a = affine.data<float>();
  const simd::Output out = channels_output(y);
  for_chunks(x, [&](int64_t row, int64_t rows, int64_t) {
    simd::normalize_by_mask(input_at(x, row), input_at(residual, row), {a, a + c, a + 2 * c},
                            mask_at(mask, row), out.from(row * c), rows, c);
  });
}

void gradient_sums_kernel(Cpu, const Tensor& dy, const Tensor& mask, const Tensor& x,
                          const Tensor& affine, const Tensor& g, int64_t first,
                          const Tensor& partial, const Tensor& sums) {
  const int64_t c = width_of(x);
  if (x.dtype() == DType::f64) {
    double* total = sums.mut<double>();
    for (int64_t row = 0; row < rows_of(x); ++row)
      for (int64_t k = 0; k < c; ++k) {
        const double d = kept(mask, row, k) ? at<double>(dy, row)[k] : 0;
        if (g.defined()) at<double>(g, row)[k] = d;
        total[k] += d;
        total[c + k] += d * (at<double>(x, row)[k] - affine.data<double>()[k]);
      }
    return;
  }
  const float* mean = affine.data<float>();
  const simd::Output out = channels_output(g);
  float* chunks = partial.mut<float>() + first / chunk_rows(kCpu, c) * 2 * c;
  for_chunks(x, [&](int64_t row, int64_t rows, int64_t chunk) {
    float* sum = chunks + 2 * chunk * c;
    simd::chunk_gradients(input_at(dy, row), mask_at(mask, row), input_at(x, row), mean,
                          g.defined() ? out.from(row * c) : out, sum, sum + c, rows, c);
  });
}

void combine_sums_kernel(Cpu, const Tensor& partial, const Tensor& sums) {
  const int64_t c = sums.size(1);
  double* total = sums.mut<double>();
  parallel_for(0, 2 * c, kColumnGrain, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = 0; chunk < partial.size(0); ++chunk) {
      const float* sum = partial.data<float>() + 2 * chunk * c;
      for (int64_t k = begin; k < end; ++k) total[k] += static_cast<double>(sum[k]);
    }
  });
}

void input_gradient_kernel(Cpu, const Tensor& dy, const Tensor& mask, const Tensor& x,
                           const Tensor& affine, const Tensor& dx) {
  const int64_t c = width_of(x);
  if (x.dtype() == DType::f64) {
    const double* a = affine.data<double>();
    for (int64_t row = 0; row < rows_of(x); ++row)
      for (int64_t k = 0; k < c; ++k) {
        const double d = kept(mask, row, k) ? at<double>(dy, row)[k] : 0;
        at<double>(dx, row)[k] =
            d * a[c + k] + (at<double>(x, row)[k] - a[k]) * a[2 * c + k] + a[3 * c + k];
      }
    return;
  }
  const float* a = affine.data<float>();
  const simd::Output out = channels_output(dx);
  for_chunks(x, [&](int64_t row, int64_t rows, int64_t) {
    simd::input_gradient(input_at(dy, row), mask_at(mask, row), input_at(x, row),
                         {a, a + c, a + 2 * c, a + 3 * c}, out.from(row * c), rows, c);
  });
}

void finish_moments_kernel(Cpu, const Tensor& mean, const Tensor& variance, int64_t rows,
                           const BatchNormOptions& options, const BatchNormMoments& moments,
                           const Tensor& running_mean, const Tensor& running_var) {
  const double *m = mean.data<double>(), *v = variance.data<double>();
  const double unbiased = static_cast<double>(rows) / static_cast<double>(rows - 1);
  with_real(moments.mean.dtype(), [&](auto zero) {
    using T = decltype(zero);
    auto move = [&](const Tensor& running, int64_t k, double batch) {
      T& value = running.mut<T>()[k];
      value = static_cast<T>((1 - options.momentum) * static_cast<double>(value) +
                             options.momentum * batch);
    };
    for (int64_t k = 0; k < mean.numel(); ++k) {
      moments.mean.mut<T>()[k] = static_cast<T>(m[k]);
      moments.invstd.mut<T>()[k] = static_cast<T>(1 / std::sqrt(v[k] + options.eps));
      if (running_mean.defined()) move(running_mean, k, m[k]);
      if (running_var.defined()) move(running_var, k, v[k] * unbiased);
    }
  });
}

void running_moments_kernel(Cpu, const Tensor& running_mean, const Tensor& running_var, double eps,
                            const BatchNormMoments& moments) {
  with_real(moments.mean.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t k = 0; k < running_mean.numel(); ++k) {
      moments.mean.mut<T>()[k] = running_mean.data<T>()[k];
      moments.invstd.mut<T>()[k] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(running_var.data<T>()[k]) + eps));
    }
  });
}

void fold_kernel(Cpu, const BatchNormMoments& moments, const BatchNormParameters& parameters,
                 const Tensor& affine) {
  with_real(affine.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t c = moments.mean.numel();
    T* a = affine.mut<T>();
    for (int64_t k = 0; k < c; ++k) {
      const T weight = parameters.weight.defined() ? parameters.weight.data<T>()[k] : T{1};
      a[k] = moments.mean.data<T>()[k];
      a[c + k] = weight * moments.invstd.data<T>()[k];
      a[2 * c + k] = parameters.bias.defined() ? parameters.bias.data<T>()[k] : T{0};
    }
  });
}

void fold_gradient_kernel(Cpu, const Tensor& sums, int64_t rows, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, bool training,
                          const Tensor& affine, const Tensor& dweight, const Tensor& dbias) {
  with_real(affine.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const int64_t c = moments.mean.numel();
    const double *sum = sums.data<double>(), *product = sum + c;
    T* a = affine.mut<T>();
    const auto n = static_cast<double>(rows);
    for (int64_t k = 0; k < c; ++k) {
      const double invstd = static_cast<double>(moments.invstd.data<T>()[k]);
      const double weight =
          parameters.weight.defined() ? static_cast<double>(parameters.weight.data<T>()[k]) : 1.0;
      const double of_g = weight * invstd;
      a[k] = moments.mean.data<T>()[k];
      a[c + k] = static_cast<T>(of_g);
      a[2 * c + k] = training ? static_cast<T>(-of_g * invstd * invstd * product[k] / n) : T{0};
      a[3 * c + k] = training ? static_cast<T>(-of_g * sum[k] / n) : T{0};
      dweight.mut<T>()[k] = static_cast<T>(product[k] * invstd);
      dbias.mut<T>()[k] = static_cast<T>(sum[k]);
    }
  });
}

}  // namespace frugal::ops
