// Updates all parameters at once. With z = g^2, a parameter is cut into tiles. The five launches
// compute:
//   1  for each tile, the sums of z by row and by column, and of p^2
//   2  r and c from these, and their inverse roots
//   3  for each tile, the sum of z / (r c): the squares of the direction, up to the mean of r
//   4  a rate for each parameter
//   5  p -= rate g / sqrt(r c)
// A parameter without r is a matrix of one row.
#include "ops/optimizer/adafactor.h"

#include <cmath>

#include "core/cuda/cuda_kernel.h"
#include "core/cuda/cuda_late_kernel.h"
#include "core/finite.h"

namespace frugal::ops {
namespace {

using cuda::kWarp;

constexpr int kThreads = 256, kWarps = kThreads / kWarp;
constexpr int kDeep = 8, kWide = 4;  // rows that a warp takes, columns that a lane takes
constexpr int kTileRows = kWarps * kDeep, kTileCols = kWarp * kWide;

struct Row {
  float* p;
  const float* g;
  float *r, *c;
  int64_t rows, cols;
  int64_t first_tile, first_run;  // a run has kThreads rows and columns
  // Where the sums by row (one for each tile across) and by column (one for each tile down) and the
  // roots of this parameter begin.
  int64_t row_sums, column_sums, roots;
  double beta, floor, lr, clip, least_scale;
  float keep;
  bool scales;

  __host__ __device__ int64_t across() const { return (cols + kTileCols - 1) / kTileCols; }
  __host__ __device__ int64_t down() const { return (rows + kTileRows - 1) / kTileRows; }
};
struct Table {
  static constexpr int kRows = 32000 / static_cast<int>(sizeof(Row));
  int64_t tiles = 0, runs = 0, sums = 0, roots = 0;
  int rows = 0;
  Row row[kRows];
};
static_assert(sizeof(Table) <= 32000 + 64);

// The row of the table whose tiles, or runs, hold `index`.
__device__ __forceinline__ int find(const Table& table, int64_t Row::*first, int64_t index) {
  int low = 0, high = table.rows - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (table.row[middle].*first <= index)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// Calls f(k, i, j) for the elements [i, j] of a thread, where j is its k-th column, and done(i)
// after each row. Whole warps make these calls together.
template <class F, class Done>
__device__ __forceinline__ void for_tile(const Row& row, int64_t tile, const F& f,
                                         const Done& done) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t i0 = tile / row.across() * kTileRows + warp * kDeep;
  const int64_t j0 = tile % row.across() * kTileCols + lane;
#pragma unroll
  for (int q = 0; q < kDeep; ++q) {
    if (i0 + q >= row.rows) break;
#pragma unroll
    for (int k = 0; k < kWide; ++k)
      if (j0 + k * kWarp < row.cols) f(k, i0 + q, j0 + k * kWarp);
    done(i0 + q);
  }
}

__device__ __forceinline__ double square(float x) {
  return static_cast<double>(x) * static_cast<double>(x);
}

template <class Argument>
__global__ void squares_kernel(const Argument argument, double* sums, double* of_parameter) {
  const Table* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Table& table = *given;
  __shared__ double columns[kWarps][kTileCols];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp, warp = thread / kWarp;
  for (int64_t at = blockIdx.x; at < table.tiles; at += gridDim.x) {
    const Row& row = table.row[find(table, &Row::first_tile, at)];
    const int64_t tile = at - row.first_tile, right = tile % row.across();
    double column[kWide] = {}, along = 0, parameter = 0;
    for_tile(
        row, tile,
        [&](int k, int64_t i, int64_t j) {
          const double z = square(row.g[i * row.cols + j]);
          along += z;
          column[k] += z;
          parameter += square(row.p[i * row.cols + j]);
        },
        [&](int64_t i) {
          along = cuda::across_warp(along, cuda::Sum<double>{});
          if (lane == 0) sums[row.row_sums + right * row.rows + i] = along;
          along = 0;
        });
    parameter = cuda::block_sum(parameter);  // the values of the previous tile have been read, too
    if (thread == 0) of_parameter[at] = parameter;
    for (int k = 0; k < kWide; ++k) columns[warp][lane + k * kWarp] = column[k];
    __syncthreads();
    const int64_t j = right * kTileCols + thread;
    if (thread < kTileCols && j < row.cols) {
      double sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += columns[w][thread];
      sums[row.column_sums + tile / row.across() * row.cols + j] = sum;
    }
  }
}

template <class Argument>
__global__ void moments_kernel(const Argument argument, const double* sums, float* roots) {
  const Table* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Table& table = *given;
  for (int64_t run = blockIdx.x; run < table.runs; run += gridDim.x) {
    const Row& row = table.row[find(table, &Row::first_run, run)];
    const int64_t line = (run - row.first_run) * kThreads + threadIdx.x;
    if (line >= row.rows + row.cols) continue;
    const bool is_row = line < row.rows;
    const int64_t index = is_row ? line : line - row.rows;
    float root = 1;
    if (float* moments = is_row ? row.r : row.c; moments != nullptr) {
      const int64_t parts = is_row ? row.across() : row.down(), step = is_row ? row.rows : row.cols;
      const double* from = sums + (is_row ? row.row_sums : row.column_sums) + index;
      double sum = 0;
      for (int64_t k = 0; k < parts; ++k) sum += from[k * step];
      const double mean = sum / static_cast<double>(is_row ? row.cols : row.rows) + row.floor;
      const auto now = static_cast<float>(row.beta * static_cast<double>(moments[index]) +
                                          (1 - row.beta) * mean);
      moments[index] = now;
      root = static_cast<float>(1 / sqrt(static_cast<double>(now)));
    }
    roots[row.roots + line] = root;
  }
}

template <class Argument>
__global__ void directions_kernel(const Argument argument, const float* roots,
                                  double* of_direction) {
  const Table* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Table& table = *given;
  for (int64_t at = blockIdx.x; at < table.tiles; at += gridDim.x) {
    const Row& row = table.row[find(table, &Row::first_tile, at)];
    const float *of_row = roots + row.roots, *of_column = of_row + row.rows;
    double along = 0, all = 0;
    for_tile(
        row, at - row.first_tile,
        [&](int, int64_t i, int64_t j) { along += square(row.g[i * row.cols + j] * of_column[j]); },
        [&](int64_t i) {
          all += along * square(of_row[i]);
          along = 0;
        });
    all = cuda::block_sum(all);
    if (threadIdx.x == 0) of_direction[at] = all;
  }
}

// rates[row]: the factor of g / sqrt(r c).
template <class Argument>
__global__ void rates_kernel(const Argument argument, const double* of_parameter,
                             const double* of_direction, double* rates) {
  const Table* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Table& table = *given;
  for (int at = static_cast<int>(blockIdx.x); at < table.rows; at += static_cast<int>(gridDim.x)) {
    const Row& row = table.row[at];
    const int64_t tiles = row.across() * row.down();
    double parameter = 0, direction = 0, mean = 0;
    for (int64_t k = threadIdx.x; k < tiles; k += blockDim.x) {
      parameter += of_parameter[row.first_tile + k];
      direction += of_direction[row.first_tile + k];
    }
    if (row.r != nullptr)
      for (int64_t i = threadIdx.x; i < row.rows; i += blockDim.x)
        mean += static_cast<double>(row.r[i]) / static_cast<double>(row.rows);
    parameter = cuda::block_sum(parameter);
    direction = cuda::block_sum(direction);
    mean = row.r != nullptr ? cuda::block_sum(mean) : 1;
    const double n = static_cast<double>(row.rows) * static_cast<double>(row.cols);
    double scale = 1;
    if (row.scales) {
      const double size = sqrt(parameter / n);
      scale = is_nan(size) ? size : fmax(row.least_scale, size);  // NaN stays
    }
    const double rms = sqrt(direction * mean / n);
    if (threadIdx.x == 0) rates[at] = row.lr * scale / fmax(1.0, rms / row.clip) * sqrt(mean);
  }
}

template <class Argument>
__global__ void apply_kernel(const Argument argument, const float* roots, const double* rates) {
  const Table* given = cuda::value_of(argument);
  if (given == nullptr) return;
  const Table& table = *given;
  for (int64_t at = blockIdx.x; at < table.tiles; at += gridDim.x) {
    const int number = find(table, &Row::first_tile, at);
    const Row& row = table.row[number];
    const float *of_row = roots + row.roots, *of_column = of_row + row.rows;
    const double rate = rates[number];
    for_tile(
        row, at - row.first_tile,
        [&](int, int64_t i, int64_t j) {
          const auto factor = static_cast<float>(rate * static_cast<double>(of_row[i]));
          float& p = row.p[i * row.cols + j];
          // Written as fmaf: the kernels of ordinary steps and of captured steps must round alike.
          p = fmaf(row.keep, p, -factor * row.g[i * row.cols + j] * of_column[j]);
        },
        [](int64_t) {});
  }
}

void run(const Table& table, Device device) {
  if (table.tiles == 0) return;
  const auto launch = [&]<class Argument>(const Argument& argument) {
    const CategoryScope scope(Category::workspace);
    const Tensor numbers =
        Tensor::empty({table.sums + 2 * table.tiles + table.rows}, DType::f64, device);
    const Tensor roots = Tensor::empty({table.roots}, DType::f32, device);
    double *sums = numbers.mut<double>(), *of_parameter = sums + table.sums,
           *of_direction = of_parameter + table.tiles, *rates = of_direction + table.tiles;
    const cuda::Grid tiles{cuda::blocks_for(table.tiles, 1), kThreads};
    cuda::launch(squares_kernel<Argument>, tiles, argument, sums, of_parameter);
    cuda::launch(moments_kernel<Argument>, {cuda::blocks_for(table.runs, 1), kThreads}, argument,
                 sums, roots.mut<float>());
    cuda::launch(directions_kernel<Argument>, tiles, argument, roots.data<float>(), of_direction);
    cuda::launch(rates_kernel<Argument>, {cuda::blocks_for(table.rows, 1), kThreads}, argument,
                 of_parameter, of_direction, rates);
    cuda::launch(apply_kernel<Argument>, tiles, argument, roots.data<float>(), rates);
  };
  cuda::with_late(table, launch);
}

}  // namespace

void adafactor_steps_kernel(Cuda, const std::vector<AdafactorUpdate>& updates) {
  const Device device = updates.front().parameter.device();
  Table table;
  for (const AdafactorUpdate& u : updates) {
    if (u.parameter.numel() == 0) continue;
    if (table.rows == Table::kRows) {
      run(table, device);
      table = {};
    }
    const AdafactorStep& step = u.step;
    const int64_t rows = u.r.defined() ? u.r.numel() : 1, cols = u.parameter.numel() / rows;
    Row& row = table.row[table.rows++];
    row = {u.parameter.mut<float>(),
           u.gradient.data<float>(),
           u.r.defined() ? u.r.mut<float>() : nullptr,
           u.c.mut<float>(),
           rows,
           cols,
           table.tiles,
           table.runs,
           0,
           0,
           table.roots,
           1 - std::pow(static_cast<double>(step.step), -step.decay_rate),
           step.floor,
           step.lr,
           step.clip,
           step.least_scale,
           static_cast<float>(1 - step.lr * step.weight_decay),
           step.scale_parameter};
    row.row_sums = table.sums;
    row.column_sums = row.row_sums + row.across() * rows;
    table.sums = row.column_sums + row.down() * cols;
    table.tiles += row.across() * row.down();
    table.runs += (rows + cols + kThreads - 1) / kThreads;
    table.roots += rows + cols;
  }
  run(table, device);
}

}  // namespace frugal::ops
