#include "ops/sequence/layer_norm.h"

#include "ops/cuda/cuda_columns.h"
#include "ops/cuda/cuda_row_teams.h"

namespace frugal::ops {
namespace {

using namespace cuda;

// The type of sums over a row: f32 if a thread adds a few tens of elements, f64 if it may add any
// number.
template <class Kind>
using RowSum = std::conditional_t<(Kind::kElements > 0), float, double>;

struct Parameters {
  const float *weight, *bias;
  float *mean, *invstd;  // one for each row; mean is null for RMS norm
};

template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads)
    norm_rows(const typename Kind::T* x, Parameters p, double eps, bool given, int64_t rows,
              int64_t width, typename Kind::T* y) {
  constexpr int N = Kind::N;
  using S = RowSum<Kind>;
  const auto count = static_cast<double>(width);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * Kind::kTeams;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * Kind::kTeams + Kind::team(); row < rows;
       row += stride) {
    const Row<Kind> from(x + row * width, width);
    float mean = 0, invstd = 0;
    if (given) {
      mean = p.mean != nullptr ? p.mean[row] : 0;
      invstd = p.invstd[row];
    } else {
      if (p.mean != nullptr)
        mean = static_cast<float>(
            static_cast<double>(from.template sum<S>([](int64_t, float v) { return v; })) / count);
      S rest = 0, squares = 0;
      Kind::places(width, [&](int step, int64_t column) {
        const Floats<N> v = from.at(step, column);
        float part = 0, parts = 0;
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float d = v.at[i] - mean;
          part += d;
          parts += d * d;
        }
        rest += static_cast<S>(part);
        squares += static_cast<S>(parts);
      });
      double variance = static_cast<double>(Kind::sum(squares)) / count;
      if (p.mean != nullptr) {
        // The mean is corrected, as on the CPU: see layer_norm_loops.cpp.
        const double off = static_cast<double>(Kind::sum(rest)) / count;
        mean = static_cast<float>(static_cast<double>(mean) + off);
        variance -= off * off;
        if (variance < 0) variance = 0;  // NaN stays NaN
      }
      invstd = static_cast<float>(1 / sqrt(variance + eps));
      if (Kind::lane() == 0) {
        if (p.mean != nullptr) p.mean[row] = mean;
        p.invstd[row] = invstd;
      }
    }
    Kind::places(width, [&](int step, int64_t column) {
      Floats<N> v = from.at(step, column);
      const Floats<N> weight = get_or<N>(p.weight, column, 1), bias = get_or<N>(p.bias, column, 0);
#pragma unroll
      for (int i = 0; i < N; ++i)
        v.at[i] = __fmaf_rn(__fmul_rn(v.at[i] - mean, invstd), weight.at[i], bias.at[i]);
      put<N>(y + row * width + column, v);
    });
  }
}

template <class T>
struct Backward {
  const T *dy, *x;
  const float *mean, *invstd, *scale, *gain, *weight;
  int64_t rows, width, step;  // step: rows that a block takes
  T* dx;                      // may be dy, or null
  float* sums;                // [blocks, 2, width] of dy xhat and dy, or null
};

// dx = scale (g - sum(g) / n - (x - mean) invstd^2 sum(g (x - mean)) / n), with g = weight dy. The
// sums that a thread adds over its rows stay in its registers. The sums of the teams of a block are
// combined at the end, in a fixed order.
template <class Kind>
__global__ void __launch_bounds__(Kind::kThreads) norm_backward_rows(Backward<typename Kind::T> p) {
  constexpr int N = Kind::N, kHeld = Kind::kElements > 0 ? Kind::kElements : 1;
  using S = RowSum<Kind>;
  const int64_t width = p.width, begin = blockIdx.x * p.step;
  const int64_t end = begin + p.step < p.rows ? begin + p.step : p.rows;
  float of_weight[kHeld] = {}, of_bias[kHeld] = {};
  for (int64_t row = begin + Kind::team(); row < end; row += Kind::kTeams) {
    const Row<Kind> dy(p.dy + row * width, width), x(p.x + row * width, width);
    const float mean = p.mean != nullptr ? p.mean[row] : 0, invstd = p.invstd[row];
    const float scale = p.scale != nullptr ? p.scale[row] : invstd;
    S sum = 0, product = 0;
    Kind::places(width, [&](int step, int64_t column) {
      const Floats<N> g = dy.at(step, column), v = x.at(step, column),
                      weight = get_or<N>(p.weight, column, 1);
      float part = 0, parts = 0;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float weighted = g.at[i] * weight.at[i], d = v.at[i] - mean;
        part += weighted;
        parts += weighted * d;
        if constexpr (Kind::kElements > 0) {
          of_weight[step * N + i] += d * invstd * g.at[i];
          of_bias[step * N + i] += g.at[i];
        }
      }
      sum += static_cast<S>(part);
      product += static_cast<S>(parts);
    });
    if (p.dx == nullptr) continue;  // all threads agree
    sum = Kind::sum(sum);
    product = Kind::sum(product);
    const auto n = static_cast<float>(width);
    const float shift = p.mean != nullptr ? scale * static_cast<float>(sum) / n : 0;
    const float slope = scale * invstd * invstd * static_cast<float>(product) / n;
    Kind::places(width, [&](int step, int64_t column) {
      const Floats<N> g = dy.at(step, column), v = x.at(step, column),
                      weight = get_or<N>(p.weight, column, 1), gain = get_or<N>(p.gain, column, 1);
      Floats<N> dx;
#pragma unroll
      for (int i = 0; i < N; ++i)
        dx.at[i] = scale * (g.at[i] * weight.at[i] * gain.at[i]) - shift - (v.at[i] - mean) * slope;
      put<N>(p.dx + row * width + column, dx);
    });
  }
  if constexpr (Kind::kElements > 0) {
    if (p.sums == nullptr) return;
    float* to = p.sums + static_cast<int64_t>(blockIdx.x) * 2 * width;
    for (int team = 0; team < Kind::kTeams; ++team) {
      if (team == Kind::team())
        Kind::places(width, [&](int step, int64_t column) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            float *weight = to + column + i, *bias = weight + width;
            *weight = (team == 0 ? 0 : *weight) + of_weight[step * N + i];
            *bias = (team == 0 ? 0 : *bias) + of_bias[step * N + i];
          }
        });
      if (Kind::kTeams > 1) __syncthreads();
    }
  }
}

// Only the sums, for rows that no block can hold: a thread takes N columns of the rows of a chunk.
template <class T, int N>
__global__ void __launch_bounds__(kSumThreads) parameter_sums(Backward<T> p) {
  const int64_t column = first_index() * N, width = p.width;
  if (column >= width) return;
  const int64_t begin = blockIdx.y * p.step;
  const int64_t end = begin + p.step < p.rows ? begin + p.step : p.rows;
  Floats<N> of_weight{}, of_bias{};
#pragma unroll 4
  for (int64_t row = begin; row < end; ++row) {
    const Floats<N> g = get<N>(p.dy + row * width + column), v = get<N>(p.x + row * width + column);
    const float mean = p.mean != nullptr ? p.mean[row] : 0, invstd = p.invstd[row];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      of_weight.at[i] += (v.at[i] - mean) * invstd * g.at[i];
      of_bias.at[i] += g.at[i];
    }
  }
  float* to = p.sums + static_cast<int64_t>(blockIdx.y) * 2 * width + column;
  put<N>(to, of_weight);
  put<N>(to + width, of_bias);
}

template <class T>
void sum_parameters(const Tensor& dy, const Tensor& x, const Tensor& sums, const Backward<T>& p) {
  with_vectors<T>(p.width, {&dy, &x, &sums}, [&](auto n) {
    constexpr int N = n;
    launch(parameter_sums<T, N>,
           {as_blocks(ceil_div(p.width / N, kWarp * 4), ceil_div(p.rows, p.step)), kWarp * 4}, p);
  });
}

// The number of rows for a block of the backward pass: enough blocks for the largest GPUs, and some
// rows for each team.
template <class Kind>
int64_t rows_of_block(int64_t rows) {
  constexpr int64_t kBlocks = 1024, kLeast = 4;
  return std::max(ceil_div(rows, kBlocks), kLeast * Kind::kTeams);
}

}  // namespace

void layer_norm_kernel(Cuda, const Tensor& x, const Tensor& weight, const Tensor& bias, double eps,
                       bool given, const LayerNormOutput& out) {
  if (x.numel() == 0) return;
  const int64_t width = x.shape().back(), rows = x.numel() / width;
  const Parameters p{mut_or_null<float>(weight), mut_or_null<float>(bias),
                     mut_or_null<float>(out.moments.mean), out.moments.invstd.mut<float>()};
  with_activation(x.dtype(), [&]<class T>(T) {
    with_row_kind<T>(width, {&x, &weight, &bias, &out.y}, [&]<class Kind>(Kind kind) {
      launch(norm_rows<Kind>, grid_of_rows(kind, rows), x.data<T>(), p, eps, given, rows, width,
             out.y.mut<T>());
    });
  });
}

void layer_norm_backward_kernel(Cuda, const Tensor& dy, const Tensor& x, const RowMoments& moments,
                                const Tensor& weight, const LayerNormGradients& out) {
  const int64_t width = x.shape().back(), rows = x.numel() / width;
  const bool want_sums = out.dweight.defined() || out.dbias.defined();
  if (rows == 0) {
    for (const Tensor* sum : {&out.dweight, &out.dbias})
      if (sum->defined()) fill_kernel(Cuda{}, *sum, 0);
    return;
  }
  CategoryScope scope(Category::workspace);
  with_activation(x.dtype(), [&]<class T>(T) {
    with_row_kind<T>(width, {&dy, &x, &weight, &moments.gain, &out.dx}, [&]<class Kind>(Kind) {
      const int64_t step = rows_of_block<Kind>(rows), blocks = ceil_div(rows, step);
      const Tensor sums =
          want_sums ? Tensor::empty({blocks, 2, width}, DType::f32, x.device()) : Tensor();
      const Backward<T> p{dy.data<T>(),
                          x.data<T>(),
                          mut_or_null<float>(moments.mean),
                          moments.invstd.data<float>(),
                          mut_or_null<float>(moments.scale),
                          mut_or_null<float>(moments.gain),
                          mut_or_null<float>(weight),
                          rows,
                          width,
                          step,
                          mut_or_null<T>(out.dx),
                          mut_or_null<float>(sums)};
      // This runs first, because dx may be written over dy.
      if (Kind::kElements == 0 && want_sums) sum_parameters(dy, x, sums, p);
      if (out.dx.defined() || Kind::kElements > 0)
        launch(norm_backward_rows<Kind>, {as_blocks(blocks), Kind::kThreads}, p);
      if (!want_sums) return;
      const Tensor totals = Tensor::empty({2, width}, DType::f64, x.device());
      sum_rows(x.device(), sums.data<float>(), blocks, 2 * width, false, totals.mut<double>());
      const double* total = totals.data<double>();
      if (out.dweight.defined()) for_each(width, Narrow{total, out.dweight.mut<float>()});
      if (out.dbias.defined()) for_each(width, Narrow{total + width, out.dbias.mut<float>()});
    });
  });
}

}  // namespace frugal::ops
