#include "ops/image/group_norm.h"

#include "ops/cuda/cuda_columns.h"

// Sums are taken over the rows of a chunk of a sample first, column by column, and then, in f64,
// over the chunks and the columns of a group.
namespace frugal::ops {
namespace {

using namespace cuda;

struct Groups {
  int64_t count, width;  // count: groups of a sample; width: channels of a group
};

Chunks chunks_of(const Tensor& x) {
  const int64_t n = x.size(0), c = x.shape().back();
  return moment_chunks(n, x.numel() / n / c, c);
}
Groups groups_of(const Tensor& x, const Tensor& invstd) {
  return {invstd.size(1), x.shape().back() / invstd.size(1)};
}

constexpr int kGroupThreads = 128;

// One block for each group of each sample: first the mean, then the squares about it.
template <class T>
__global__ void __launch_bounds__(kGroupThreads)
    combine_groups(const T* x, const float* sums, Chunks chunks, Groups groups, double eps,
                   float* mean, float* invstd) {
  const int64_t c = chunks.c, sample = blockIdx.x / groups.count;
  const int64_t first_column = blockIdx.x % groups.count * groups.width;
  const auto all = static_cast<double>(chunks.rows * groups.width);
  double middle = 0;
  for (int pass = 0; pass < 2; ++pass) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < chunks.chunks * groups.width; i += kGroupThreads) {
      const int64_t chunk = i / groups.width, column = first_column + i % groups.width;
      const int64_t at = sample * chunks.rows + chunk * chunks.step;
      const auto count = static_cast<double>(chunks.count(chunk));
      const double first = static_cast<double>(load(x[at * c + column]));
      const float* part = sums + 2 * (sample * chunks.chunks + chunk) * c + column;
      const double shifted = static_cast<double>(part[0]);
      const double delta = first + shifted / count - middle;
      sum += pass == 0
                 ? count * first + shifted
                 : static_cast<double>(part[c]) - shifted * shifted / count + count * delta * delta;
    }
    sum = block_sum(sum) / all;
    if (pass == 0) middle = sum;
    if (threadIdx.x != 0) continue;
    if (pass == 0)
      mean[blockIdx.x] = static_cast<float>(sum);
    else
      invstd[blockIdx.x] = static_cast<float>(1 / sqrt((sum < 0 ? 0 : sum) + eps));
  }
}

// The number of each group, for N channels from `column` on.
template <int N>
__device__ __forceinline__ Floats<N> of_groups(const float* value, const Groups& groups,
                                               int64_t sample, int64_t column) {
  Floats<N> out;
#pragma unroll
  for (int i = 0; i < N; ++i)
    out.at[i] = value[sample * groups.count + (column + i) / groups.width];
  return out;
}

struct GroupMean {
  const float* mean;
  Groups groups;
  template <int N>
  __device__ Floats<N> at(int64_t sample, int64_t column) const {
    return of_groups<N>(mean, groups, sample, column);
  }
};

constexpr int kGroupPassThreads = 256;

// One block for each chunk of a sample. If `dy` is given it writes dx, else y.
template <class T>
struct Pass {
  const T *x, *dy;
  const float *mean, *invstd, *weight, *bias, *shift, *slope, *scale, *gain;
  Groups groups;
  Chunks chunks;
  T* out;
};

template <class T, int N>
__global__ void __launch_bounds__(kGroupPassThreads) group_pass(Pass<T> p, Columns columns) {
  const Columns::Place place = columns.place();
  if (!place.inside) return;
  const int64_t sample = p.chunks.sample(), c = p.chunks.c, column = place.pack * N;
  const Floats<N> mean = of_groups<N>(p.mean, p.groups, sample, column),
                  invstd = of_groups<N>(p.invstd, p.groups, sample, column),
                  weight = get_or<N>(p.weight, column, 1), bias = get_or<N>(p.bias, column, 0),
                  gain = get_or<N>(p.gain, column, 1);
  Floats<N> shift{}, slope{}, scale{};
  if (p.dy != nullptr) {
    shift = of_groups<N>(p.shift, p.groups, sample, column);
    slope = of_groups<N>(p.slope, p.groups, sample, column);
    scale = of_groups<N>(p.scale, p.groups, sample, column);
  }
#pragma unroll 4
  for (int64_t row = p.chunks.begin() + place.y; row < p.chunks.end(); row += columns.tall) {
    const int64_t at = (sample * p.chunks.rows + row) * c + column;
    const Floats<N> x = get<N>(p.x + at);
    Floats<N> dy{}, out;
    if (p.dy != nullptr) dy = get<N>(p.dy + at);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float xhat = __fmul_rn(x.at[i] - mean.at[i], invstd.at[i]);
      out.at[i] = p.dy == nullptr ? __fmaf_rn(xhat, weight.at[i], bias.at[i])
                                  : scale.at[i] * (dy.at[i] * weight.at[i] * gain.at[i] -
                                                   shift.at[i] - xhat * slope.at[i]);
    }
    put<N>(p.out + at, out);
  }
}

template <class T>
void pass_over(const Pass<T>& p, std::initializer_list<const Tensor*> tensors) {
  with_vectors<T>(p.chunks.c, tensors, [&](auto n) {
    constexpr int N = n;
    const Columns columns = columns_over(p.chunks.c / N, kGroupPassThreads, p.chunks.step);
    launch(group_pass<T, N>,
           {as_blocks(p.chunks.samples * p.chunks.chunks, columns.tiles), columns.threads}, p,
           columns);
  });
}

// terms [samples, 2, C] f64: a sample's sums of dy and of dy xhat.
struct SampleTerms {
  const float *sums, *invstd;
  Groups groups;
  Chunks chunks;
  double* terms;
  __device__ void operator()(int64_t i) const {
    const int64_t sample = i / (2 * chunks.c), place = i % (2 * chunks.c);
    const float* part = sums + sample * chunks.chunks * 2 * chunks.c + place;
    double sum = 0;
    for (int64_t chunk = 0; chunk < chunks.chunks; ++chunk)
      sum += static_cast<double>(part[chunk * 2 * chunks.c]);
    if (place >= chunks.c)
      sum *= static_cast<double>(invstd[sample * groups.count + (place - chunks.c) / groups.width]);
    terms[i] = sum;
  }
};

// Where a sample has more chunks, threads share them: few samples of few channels would leave most
// of the device without work.
constexpr int64_t kManyChunks = 32;

// terms [samples, 2, C] f64: each sample's sums over its chunks.
void add_chunks(const float* sums, const Chunks& chunks, double* terms) {
  const int64_t columns = 2 * chunks.c;
  const int64_t across = ceil_div(columns, kWarp);
  for (int64_t first = 0; first < chunks.samples; first += kMostBlocksAcross) {
    const int64_t samples = std::min(chunks.samples - first, kMostBlocksAcross);
    launch(sum_rows_kernel<float>, {as_blocks(across, samples), kWarp * kSumLanes},
           sums + first * chunks.chunks * columns, samples * chunks.chunks, columns, chunks.chunks,
           false, terms + first * columns);
  }
}

// Makes sums of dy xhat of sums of dy (x - mean).
struct ScaleTerms {
  const float* invstd;
  Groups groups;
  int64_t c;
  double* terms;
  __device__ void operator()(int64_t i) const {
    const int64_t sample = i / c, k = i % c;
    terms[(2 * sample + 1) * c + k] *=
        static_cast<double>(invstd[sample * groups.count + k / groups.width]);
  }
};

// The averages of weight dy and of weight dy xhat over a group.
struct GroupAverages {
  const double* terms;
  const float* weight;
  Groups groups;
  Chunks chunks;
  float *shift, *slope;
  __device__ void operator()(int64_t i) const {
    const double* of_dy = terms + i / groups.count * 2 * chunks.c;
    const int64_t begin = i % groups.count * groups.width;
    double sum = 0, product = 0;
    for (int64_t k = begin; k < begin + groups.width; ++k) {
      const double w = weight != nullptr ? static_cast<double>(weight[k]) : 1;
      sum += w * of_dy[k];
      product += w * of_dy[chunks.c + k];
    }
    const auto count = static_cast<double>(chunks.rows * groups.width);
    shift[i] = static_cast<float>(sum / count);
    slope[i] = static_cast<float>(product / count);
  }
};

}  // namespace

void group_norm_kernel(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out) {
  const RowMoments& moments = out.moments;
  if (x.numel() == 0) {
    if (given) return;
    fill_kernel(Cuda{}, moments.mean, 0);
    fill_kernel(Cuda{}, moments.invstd, 1 / std::sqrt(eps));
    return;
  }
  const Chunks chunks = chunks_of(x);
  const Groups groups = groups_of(x, moments.invstd);
  const int64_t blocks = chunks.samples * chunks.chunks;
  CategoryScope scope(Category::workspace);
  with_activation(x.dtype(), [&]<class T>(T) {
    if (!given) {
      const Tensor sums = Tensor::empty({blocks, 2, chunks.c}, DType::f32, x.device());
      chunk_moments<T>(x, chunks, sums.mut<float>());
      launch(combine_groups<T>, {as_blocks(chunks.samples * groups.count), kGroupThreads},
             x.data<T>(), sums.data<float>(), chunks, groups, eps, moments.mean.mut<float>(),
             moments.invstd.mut<float>());
    }
    Pass<T> p{};
    p.x = x.data<T>();
    p.mean = moments.mean.data<float>();
    p.invstd = moments.invstd.data<float>();
    p.weight = mut_or_null<float>(weight);
    p.bias = mut_or_null<float>(bias);
    p.groups = groups;
    p.chunks = chunks;
    p.out = out.y.mut<T>();
    pass_over(p, {&x, &weight, &bias, &out.y});
  });
}

void group_norm_backward_kernel(Cuda, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out) {
  if (x.numel() == 0) {
    for (const Tensor* sum : {&out.dweight, &out.dbias})
      if (sum->defined()) fill_kernel(Cuda{}, *sum, 0);
    return;
  }
  const Chunks chunks = chunks_of(x);
  const Groups groups = groups_of(x, moments.invstd);
  const int64_t n = chunks.samples, c = chunks.c;
  CategoryScope scope(Category::workspace);
  const Tensor sums = Tensor::empty({n * chunks.chunks, 2, c}, DType::f32, x.device());
  const Tensor terms = Tensor::empty({n, 2, c}, DType::f64, x.device());
  const Tensor averages = Tensor::empty({2, n, groups.count}, DType::f32, x.device());
  const float *mean = moments.mean.data<float>(), *invstd = moments.invstd.data<float>();
  float *shift = averages.mut<float>(), *slope = shift + n * groups.count;
  with_activation(x.dtype(), [&]<class T>(T) {
    chunk_gradients<T>(dy, Tensor(), x, GroupMean{mean, groups}, Tensor(), Tensor(), chunks,
                       sums.mut<float>());
    if (chunks.chunks > kManyChunks) {
      add_chunks(sums.data<float>(), chunks, terms.mut<double>());
      for_each(n * c, ScaleTerms{invstd, groups, c, terms.mut<double>()});
    } else {
      for_each(n * 2 * c,
               SampleTerms{sums.data<float>(), invstd, groups, chunks, terms.mut<double>()});
    }
    if (out.dx.defined()) {
      for_each(n * groups.count, GroupAverages{terms.data<double>(), mut_or_null<float>(weight),
                                               groups, chunks, shift, slope});
      const float* scale = moments.scale.defined() ? moments.scale.data<float>() : invstd;
      Pass<T> p{x.data<T>(), dy.data<T>(), mean,           invstd, mut_or_null<float>(weight),
                nullptr,     shift,        slope,          scale,  mut_or_null<float>(moments.gain),
                groups,      chunks,       out.dx.mut<T>()};
      pass_over(p, {&x, &dy, &weight, &moments.gain, &out.dx});
    }
  });
  const Tensor totals = Tensor::empty({2, c}, DType::f64, x.device());
  sum_rows(x.device(), terms.data<double>(), n, 2 * c, false, totals.mut<double>());
  const double* total = totals.data<double>();
  if (out.dweight.defined()) for_each(c, Narrow{total + c, out.dweight.mut<float>()});
  if (out.dbias.defined()) for_each(c, Narrow{total, out.dbias.mut<float>()});
}

}  // namespace frugal::ops
