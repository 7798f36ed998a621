#include "ops/image/batch_norm_kernels.h"

#include "ops/cuda/cuda_columns.h"

// A thread works on N columns and eight rows at a time, whose bits share a byte of the mask. Four
// of the rows are in flight at once, which leaves registers for several blocks on a multiprocessor.
namespace frugal::ops {
namespace {

using namespace cuda;

int64_t channels(const Tensor& x) { return x.shape().back(); }
int64_t rows_of(const Tensor& x) { return x.numel() / channels(x); }

constexpr int kPassThreads = 256;
constexpr int kLoads = 4;

// The blocks of a pass over all rows. They stride over the rows, so that values of columns are read
// rarely.
dim3 pass_blocks(const Columns& columns, int64_t rows) {
  const int64_t wanted = ceil_div(ceil_div(rows, 8), columns.tall);
  const int64_t most = ceil_div(int64_t{multiprocessors()} * 16, columns.tiles);
  return as_blocks(std::min(wanted, most), columns.tiles);
}

enum class Keep { all, positive, masked };

template <class T>
struct Normalize {
  const T *x, *residual;
  const float* affine;
  uint8_t* mask;  // an input or an output
  int64_t rows, c;
  T* y;
};

// z = (x - mean) scale + bias [+ residual]. `kKeep` says which part of z is kept.
template <class T, int N, bool kResidual, Keep kKeep>
__global__ void __launch_bounds__(kPassThreads, 2) normalize_rows(Normalize<T> p, Columns columns) {
  const Columns::Place place = columns.place();
  if (!place.inside) return;
  const int64_t c = p.c, column = place.pack * N;
  const Floats<N> mean = get<N>(p.affine + column), scale = get<N>(p.affine + c + column),
                  bias = get<N>(p.affine + 2 * c + column);
  const int64_t stride = int64_t{8} * gridDim.x * columns.tall;
  for (int64_t row = int64_t{8} * (static_cast<int64_t>(blockIdx.x) * columns.tall + place.y);
       row < p.rows; row += stride) {
    using Bits = Vector<uint8_t, N>;
    Bits* at_mask = reinterpret_cast<Bits*>(p.mask + row / 8 * c + column);
    Bits bits{};
    if constexpr (kKeep == Keep::masked) bits = *at_mask;
#pragma unroll 1
    for (int first = 0; first < 8; first += kLoads) {
      Vector<T, N> x[kLoads], added[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int64_t at = (row + first + j) * c + column;
        x[j] = added[j] = Vector<T, N>{};
        if (row + first + j >= p.rows) continue;
        x[j] = get_raw<N>(p.x + at);
        if constexpr (kResidual) added[j] = get_raw<N>(p.residual + at);
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const Floats<N> x_row = floats_of(x[j]), added_row = floats_of(added[j]);
        Floats<N> y;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          float z = __fmaf_rn(x_row.at[i] - mean.at[i], scale.at[i], bias.at[i]);
          if constexpr (kResidual) z += added_row.at[i];
          bool keep = true;
          if constexpr (kKeep == Keep::positive) {
            keep = !(z <= 0);
            bits.at[i] = static_cast<uint8_t>(bits.at[i] | unsigned{keep} << (first + j));
          }
          if constexpr (kKeep == Keep::masked) keep = (bits.at[i] >> (first + j) & 1) != 0;
          y.at[i] = keep ? z : 0;
        }
        if (row + first + j < p.rows) put<N>(p.y + (row + first + j) * c + column, y);
      }
    }
    if constexpr (kKeep == Keep::positive)
      if (p.mask != nullptr) *at_mask = bits;
  }
}

template <Keep kKeep>
void normalize(const Tensor& x, const Tensor& residual, const Tensor& affine, const Tensor& y,
               const Tensor& mask) {
  const int64_t rows = rows_of(x), c = channels(x);
  with_activation(x.dtype(), [&]<class T>(T) {
    with_vectors<T>(c, {&x, &residual, &affine, &y, &mask}, [&](auto n) {
      constexpr int N = n;
      const Columns columns = columns_over(c / N, kPassThreads, ceil_div(rows, 8));
      const Normalize<T> p{x.data<T>(),
                           mut_or_null<T>(residual),
                           affine.data<float>(),
                           mut_or_null<uint8_t>(mask),
                           rows,
                           c,
                           y.mut<T>()};
      launch(residual.defined() ? normalize_rows<T, N, true, kKeep>
                                : normalize_rows<T, N, false, kKeep>,
             {pass_blocks(columns, rows), columns.threads}, p, columns);
    });
  });
}

template <class T>
struct InputGradient {
  const T *dy, *x;
  const uint8_t* mask;
  const float* affine;
  int64_t rows, c;
  T* dx;
};

template <class T, int N>
__global__ void __launch_bounds__(kPassThreads, 2)
    input_gradient_rows(InputGradient<T> p, Columns columns) {
  const Columns::Place place = columns.place();
  if (!place.inside) return;
  const int64_t c = p.c, column = place.pack * N;
  const Floats<N> mean = get<N>(p.affine + column), of_g = get<N>(p.affine + c + column),
                  of_x = get<N>(p.affine + 2 * c + column),
                  constant = get<N>(p.affine + 3 * c + column);
  const int64_t stride = int64_t{8} * gridDim.x * columns.tall;
  for (int64_t row = int64_t{8} * (static_cast<int64_t>(blockIdx.x) * columns.tall + place.y);
       row < p.rows; row += stride) {
    Vector<uint8_t, N> bits = all_bits<N>();
    if (p.mask != nullptr) bits = get_raw<N>(p.mask + row / 8 * c + column);
#pragma unroll 1
    for (int first = 0; first < 8; first += kLoads) {
      Vector<T, N> dy[kLoads], x[kLoads];
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const int64_t at = (row + first + j) * c + column;
        dy[j] = x[j] = Vector<T, N>{};
        if (row + first + j >= p.rows) continue;
        dy[j] = get_raw<N>(p.dy + at);
        x[j] = get_raw<N>(p.x + at);
      }
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        const Floats<N> dy_row = floats_of(dy[j]), x_row = floats_of(x[j]);
        Floats<N> dx;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const bool kept = (bits.at[i] >> (first + j) & 1) != 0;
          dx.at[i] = __fmaf_rn(kept ? dy_row.at[i] : 0, of_g.at[i],
                               __fmaf_rn(x_row.at[i] - mean.at[i], of_x.at[i], constant.at[i]));
        }
        if (row + first + j < p.rows) put<N>(p.dx + (row + first + j) * c + column, dx);
      }
    }
  }
}

struct ChannelMean {
  const float* mean;
  template <int N>
  __device__ Floats<N> at(int64_t, int64_t column) const {
    return get<N>(mean + column);
  }
};

__device__ __forceinline__ double variance_of(double squares, double rows) {
  const double value = squares / rows;
  return value < 0 ? 0 : value;  // NaN stays NaN
}

// The rows of the chunks before `chunk`.
__device__ __forceinline__ int64_t rows_before(const Chunks& chunks, int64_t chunk) {
  const int64_t rows = chunk * chunks.step;
  return rows < chunks.rows ? rows : chunks.rows;
}

// Combines `share` chunks in f64: first the mean, then the squares about it. A block takes 32
// columns of share blockIdx.y, and writes [shares, C] means and sums of squares. The sums of
// squares of the only share are divided by its rows.
template <class T>
__global__ void __launch_bounds__(kWarp* kSumLanes)
    combine_moments(const T* x, const float* sums, Chunks chunks, int64_t share, double* mean,
                    double* squares_about) {
  __shared__ double partial[kSumLanes][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, y = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane, c = chunks.c;
  const bool inside = column < c;
  const int64_t first_chunk = static_cast<int64_t>(blockIdx.y) * share;
  const int64_t end = first_chunk + share < chunks.chunks ? first_chunk + share : chunks.chunks;
  const auto rows = static_cast<double>(rows_before(chunks, end) - first_chunk * chunks.step);
  const double of_step = 1.0 / static_cast<double>(chunks.step);
  const double of_last = 1.0 / static_cast<double>(chunks.count(chunks.chunks - 1));
  double middle = 0;
  for (int pass = 0; pass < 2; ++pass) {
    double sum = 0;
    if (inside)
#pragma unroll 2
      for (int64_t chunk = first_chunk + y; chunk < end; chunk += kSumLanes) {
        const auto count = static_cast<double>(chunks.count(chunk));
        const double each = chunk + 1 < chunks.chunks ? of_step : of_last;
        const double first = static_cast<double>(load(x[chunk * chunks.step * c + column]));
        const double shifted = static_cast<double>(sums[2 * chunk * c + column]);
        if (pass == 0) {
          sum += count * first + shifted;
          continue;
        }
        const double squares = static_cast<double>(sums[(2 * chunk + 1) * c + column]);
        const double delta = first + shifted * each - middle;
        sum += squares - shifted * shifted * each + count * delta * delta;
      }
    partial[y][lane] = sum;
    __syncthreads();
    sum = 0;
    for (int other = 0; other < kSumLanes; ++other) sum += partial[other][lane];
    __syncthreads();
    if (pass == 0) middle = sum / rows;
    if (!inside || y != 0) continue;
    const int64_t at = static_cast<int64_t>(blockIdx.y) * c + column;
    if (pass == 0)
      mean[at] = middle;
    else
      squares_about[at] = gridDim.y > 1 ? sum : variance_of(sum, rows);
  }
}

// The moments of all rows, of those of shares of `share` chunks. A block takes 32 columns.
__global__ void __launch_bounds__(kWarp* kSumLanes)
    merge_moments(const double* means, const double* squares, Chunks chunks, int64_t share,
                  int64_t shares, double* mean, double* variance) {
  __shared__ double partial[kSumLanes][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, y = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane, c = chunks.c;
  const bool inside = column < c;
  const auto rows = static_cast<double>(chunks.rows);
  double middle = 0;
  for (int pass = 0; pass < 2; ++pass) {
    double sum = 0;
    if (inside)
      for (int64_t i = y; i < shares; i += kSumLanes) {
        const int64_t begin = i * share * chunks.step;
        const auto count = static_cast<double>(rows_before(chunks, (i + 1) * share) - begin);
        const double here = means[i * c + column], delta = here - middle;
        sum += pass == 0 ? count * here : squares[i * c + column] + count * delta * delta;
      }
    partial[y][lane] = sum;
    __syncthreads();
    sum = 0;
    for (int other = 0; other < kSumLanes; ++other) sum += partial[other][lane];
    __syncthreads();
    if (pass == 0) middle = sum / rows;
    if (!inside || y != 0) continue;
    if (pass == 0)
      mean[column] = middle;
    else
      variance[column] = variance_of(sum, rows);
  }
}

// ---- per channel

struct FinishMoments {
  const double *mean, *variance;
  double unbiased, momentum, eps;
  float *out_mean, *out_invstd, *running_mean, *running_var;
  __device__ void move(float* running, int64_t k, double batch) const {
    if (running == nullptr) return;
    running[k] =
        static_cast<float>((1 - momentum) * static_cast<double>(running[k]) + momentum * batch);
  }
  __device__ void operator()(int64_t k) const {
    out_mean[k] = static_cast<float>(mean[k]);
    out_invstd[k] = static_cast<float>(1 / sqrt(variance[k] + eps));
    move(running_mean, k, mean[k]);
    move(running_var, k, variance[k] * unbiased);
  }
};

struct RunningMoments {
  const float *running_mean, *running_var;
  double eps;
  float *mean, *invstd;
  __device__ void operator()(int64_t k) const {
    mean[k] = running_mean[k];
    invstd[k] = static_cast<float>(1 / sqrt(static_cast<double>(running_var[k]) + eps));
  }
};

struct Fold {
  const float *mean, *invstd, *weight, *bias;
  int64_t c;
  float* affine;
  __device__ void operator()(int64_t k) const {
    affine[k] = mean[k];
    affine[c + k] = (weight != nullptr ? weight[k] : 1) * invstd[k];
    affine[2 * c + k] = bias != nullptr ? bias[k] : 0;
  }
};

struct FoldGradient {
  const double* sums;
  const float *mean, *invstd, *weight;
  int64_t c;
  double rows;
  bool training;
  float *affine, *dweight, *dbias;
  __device__ void operator()(int64_t k) const {
    const double sum = sums[k], product = sums[c + k], scale = static_cast<double>(invstd[k]);
    const double of_g = (weight != nullptr ? static_cast<double>(weight[k]) : 1) * scale;
    affine[k] = mean[k];
    affine[c + k] = static_cast<float>(of_g);
    affine[2 * c + k] =
        training ? static_cast<float>(-of_g * scale * scale * product / rows) : 0.0f;
    affine[3 * c + k] = training ? static_cast<float>(-of_g * sum / rows) : 0.0f;
    dweight[k] = static_cast<float>(product * scale);
    dbias[k] = static_cast<float>(sum);
  }
};

}  // namespace

void moments_kernel(Cuda, const Tensor& x, const Tensor& mean, const Tensor& variance) {
  const int64_t c = channels(x);
  const Chunks chunks = moment_chunks(1, rows_of(x), c);
  CategoryScope scope(Category::workspace);
  const Tensor sums = Tensor::empty({chunks.chunks, 2, c}, DType::f32, x.device());
  // Where there are few columns, few blocks would combine all chunks, so they share them.
  constexpr int64_t kShare = 64;  // four chunks for each thread
  const int64_t share = std::min(chunks.chunks, kShare), shares = ceil_div(chunks.chunks, share);
  const int64_t across = ceil_div(c, kWarp);
  Tensor parts;
  double *means = mean.mut<double>(), *squares = variance.mut<double>();
  if (shares > 1) {
    parts = Tensor::empty({2, shares, c}, DType::f64, x.device());
    means = parts.mut<double>();
    squares = means + shares * c;
  }
  with_activation(x.dtype(), [&]<class T>(T) {
    chunk_moments<T>(x, chunks, sums.mut<float>());
    launch(combine_moments<T>, {as_blocks(across, shares), kWarp * kSumLanes}, x.data<T>(),
           sums.data<float>(), chunks, share, means, squares);
  });
  if (shares > 1)
    launch(merge_moments, {as_blocks(across), kWarp * kSumLanes}, means, squares, chunks, share,
           shares, mean.mut<double>(), variance.mut<double>());
}

void normalize_kernel(Cuda, const Tensor& x, const Tensor& residual, const Tensor& affine,
                      bool relu, const Tensor& y, const Tensor& mask) {
  relu ? normalize<Keep::positive>(x, residual, affine, y, mask)
       : normalize<Keep::all>(x, residual, affine, y, Tensor());
}

void normalize_by_mask_kernel(Cuda, const Tensor& x, const Tensor& residual, const Tensor& affine,
                              const Tensor& mask, const Tensor& y) {
  normalize<Keep::masked>(x, residual, affine, y, mask);
}

void gradient_sums_kernel(Cuda, const Tensor& dy, const Tensor& mask, const Tensor& x,
                          const Tensor& mean, const Tensor& g, int64_t first, const Tensor& partial,
                          const Tensor&) {
  const int64_t c = channels(x), rows = rows_of(x), step = chunk_rows(x.device(), c);
  const Chunks chunks{1, rows, c, step, ceil_div(rows, step)};
  with_activation(x.dtype(), [&]<class T>(T) {
    chunk_gradients<T>(dy, mask, x, ChannelMean{mean.data<float>()}, mean, g, chunks,
                       partial.mut<float>() + first / step * 2 * c);
  });
}

void combine_sums_kernel(Cuda, const Tensor& partial, const Tensor& sums) {
  sum_rows(partial.device(), partial.data<float>(), partial.size(0), sums.numel(), true,
           sums.mut<double>());
}

void input_gradient_kernel(Cuda, const Tensor& dy, const Tensor& mask, const Tensor& x,
                           const Tensor& affine, const Tensor& dx) {
  const int64_t rows = rows_of(x), c = channels(x);
  with_activation(x.dtype(), [&]<class T>(T) {
    with_vectors<T>(c, {&dy, &mask, &x, &affine, &dx}, [&](auto n) {
      constexpr int N = n;
      const Columns columns = columns_over(c / N, kPassThreads, ceil_div(rows, 8));
      const InputGradient<T> p{dy.data<T>(),         x.data<T>(), mut_or_null<uint8_t>(mask),
                               affine.data<float>(), rows,        c,
                               dx.mut<T>()};
      launch(input_gradient_rows<T, N>, {pass_blocks(columns, rows), columns.threads}, p, columns);
    });
  });
}

void finish_moments_kernel(Cuda, const Tensor& mean, const Tensor& variance, int64_t rows,
                           const BatchNormOptions& options, const BatchNormMoments& moments,
                           const Tensor& running_mean, const Tensor& running_var) {
  const auto n = static_cast<double>(rows);
  for_each(
      mean.numel(),
      FinishMoments{mean.data<double>(), variance.data<double>(), n / (n - 1), options.momentum,
                    options.eps, moments.mean.mut<float>(), moments.invstd.mut<float>(),
                    mut_or_null<float>(running_mean), mut_or_null<float>(running_var)});
}

void running_moments_kernel(Cuda, const Tensor& running_mean, const Tensor& running_var, double eps,
                            const BatchNormMoments& moments) {
  for_each(running_mean.numel(),
           RunningMoments{running_mean.data<float>(), running_var.data<float>(), eps,
                          moments.mean.mut<float>(), moments.invstd.mut<float>()});
}

void fold_kernel(Cuda, const BatchNormMoments& moments, const BatchNormParameters& parameters,
                 const Tensor& affine) {
  const int64_t c = moments.mean.numel();
  for_each(c, Fold{moments.mean.data<float>(), moments.invstd.data<float>(),
                   mut_or_null<float>(parameters.weight), mut_or_null<float>(parameters.bias), c,
                   affine.mut<float>()});
}

void fold_gradient_kernel(Cuda, const Tensor& sums, int64_t rows, const BatchNormMoments& moments,
                          const BatchNormParameters& parameters, bool training,
                          const Tensor& affine, const Tensor& dweight, const Tensor& dbias) {
  const int64_t c = moments.mean.numel();
  for_each(
      c, FoldGradient{sums.data<double>(), moments.mean.data<float>(), moments.invstd.data<float>(),
                      mut_or_null<float>(parameters.weight), c, static_cast<double>(rows), training,
                      affine.mut<float>(), dweight.mut<float>(), dbias.mut<float>()});
}

}  // namespace frugal::ops
